// Every architecture that can be imported, one line each: arch/NAME.cpp, which defines
// moe::arch::NAME::importers() (importer.h). C++ includes this with MOE_ARCHITECTURE defined, CMake
// reads the lines. The order is that of error messages.

MOE_ARCHITECTURE(research)
MOE_ARCHITECTURE(llama)
MOE_ARCHITECTURE(qwen)
MOE_ARCHITECTURE(granite)
MOE_ARCHITECTURE(olmoe)
MOE_ARCHITECTURE(olmo)
MOE_ARCHITECTURE(olmo2)
MOE_ARCHITECTURE(mixtral)
MOE_ARCHITECTURE(phi3)
MOE_ARCHITECTURE(gemma)
MOE_ARCHITECTURE(glm4_moe)
MOE_ARCHITECTURE(gpt_oss)
MOE_ARCHITECTURE(bitnet)
MOE_ARCHITECTURE(maple)
MOE_ARCHITECTURE(torchscale)
MOE_ARCHITECTURE(xmoe)
MOE_ARCHITECTURE(deepseek)
MOE_ARCHITECTURE(roberta)
MOE_ARCHITECTURE(bart)
