// SPDX-License-Identifier: MIT
// For the tests' precompiled header; see tests/CMakeLists.txt.
