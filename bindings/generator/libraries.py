# SPDX-License-Identifier: MIT
"""Which library a function is in: the header does not say it."""

# How the names of the functions of libmoe_convert and libmoe_serve begin; all others are in libmoe.
CONVERT = ("moe_convert", "moe_synthetic_")
SERVE = ("moe_service_",)
