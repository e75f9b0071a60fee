// SPDX-License-Identifier: MIT
// Every token mixer with a state, one per line: its name in code, and the file with NameMixer
// (kernels/mixers/info.h). CMake generates two files from it: kernels/mixers/built.h, which has
// the lines that MOE_MIXERS leaves in and no include guard, and kernels/mixers/all.h, which
// includes their files.
MOE_MIXER(GatedDelta, "kernels/mixers/gated_delta.h")
MOE_MIXER(KimiDelta, "kernels/mixers/kimi_delta.h")
MOE_MIXER(Lightning, "kernels/mixers/lightning.h")
MOE_MIXER(Mamba2, "kernels/mixers/mamba2.h")
MOE_MIXER(ShortConv, "kernels/mixers/short_conv.h")
