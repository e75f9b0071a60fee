/* moe: Mixture-of-Experts language models with ternary or int8 weights, on small memory.
 * The public C API. See the sections below; until a section exists, only statuses do. */
#ifndef MOE_C_H
#define MOE_C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MOE_API __attribute__((visibility("default")))
#else
#define MOE_API
#endif

/* Result of every fallible call. Numbers never change; new ones are only appended to a group. */
typedef enum moe_status {
  MOE_OK = 0,
  /* 1..19: the caller's arguments */
  MOE_ERR_ARGUMENT = 1,    /* null pointer, bad struct_size, unknown option, unknown field set */
  MOE_ERR_RANGE = 2,       /* a number outside its stated range */
  MOE_ERR_SHAPE = 3,       /* shapes that do not fit together */
  MOE_ERR_NON_FINITE = 4,  /* NaN or infinity where a finite number is needed */
  MOE_ERR_STATE = 5,       /* the call is not allowed now (session in use, poisoned, empty) */
  MOE_ERR_TOO_LONG = 6,    /* more tokens than the context or buffer holds */
  MOE_ERR_UNSUPPORTED = 7, /* understood, but this build, machine or model cannot do it */
  /* 20..39: files and data */
  MOE_ERR_IO = 20,        /* open, read, write or rename failed; the text names errno */
  MOE_ERR_NOT_FOUND = 21, /* no such file, tensor, token */
  MOE_ERR_FORMAT = 22,    /* not a file of this kind, or damaged structure */
  MOE_ERR_VERSION = 23,   /* written by a newer major version */
  MOE_ERR_CORRUPT = 24,   /* checksum or content contradicts the metadata */
  MOE_ERR_TEXT = 25,      /* text that cannot be encoded or decoded */
  /* 40..59: resources */
  MOE_ERR_MEMORY = 40, /* an allocation failed */
  MOE_ERR_BUDGET = 41, /* the memory cap is too small; the text shows the sum */
  MOE_ERR_DEVICE = 42, /* device missing, lost or failed */
  MOE_ERR_CANCELLED = 43,
  /* 60..: faults of this library; please report */
  MOE_ERR_INTERNAL = 60
} moe_status;

#define MOE_ERROR_TEXT_BYTES 400

/* Where a call leaves its message: owned by the caller, may be NULL. Untouched on success. */
typedef struct moe_error {
  moe_status code;
  char text[MOE_ERROR_TEXT_BYTES]; /* UTF-8, always terminated */
} moe_error;

#ifdef __cplusplus
}
#endif
#endif
