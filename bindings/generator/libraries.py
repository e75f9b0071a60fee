# SPDX-License-Identifier: MIT
"""The library that a function is in, which the header does not say."""

# How the names of the functions of libmoe_convert and libmoe_serve begin; all others are in libmoe.
CONVERT = ("moe_convert", "moe_synthetic_")
SERVE = ("moe_service_",)
