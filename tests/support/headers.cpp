// Its precompiled header is what the tests share; see tests/CMakeLists.txt.
