/* SPDX-License-Identifier: MIT */
/* moe_c.h - Mixture-of-Experts language models with ternary, int8 or 4-bit weights on machines with
 * little memory.
 *
 * This header is the manual of the C API. It goes from the simple to the special:
 *
 *   1  Conventions and statuses       6  Session: evaluation      11  Converter (libmoe_convert)
 *   2  Version                        7  Routing, experts         12  Files that replace others
 *   3  Environment                    8  Sampling and generation  13  Service (libmoe_serve)
 *   4  Model                          9  Chat
 *   5  Tokenizer                     10  One MoE layer on its own
 *
 * The shortest program calls moe_env_create, moe_model_open, moe_session_create,
 * moe_tokenizer_encode and moe_session_generate, then frees what it made: see
 * examples/generate.c.
 *
 * 1. CONVENTIONS
 *
 * - A function that can fail returns moe_status. On failure it leaves its outputs unchanged unless
 *   stated otherwise, and `error` (may be NULL) receives the code and one line that names the
 *   faulty item.
 * - A struct that may grow begins with struct_size, by which the library knows the caller's
 *   version. MOE_INIT sets it and zeroes the rest; then set the fields you need:
 *       moe_session_params params = MOE_INIT(moe_session_params);
 *       params.context = 1024;
 *   A field that is 0 or NULL has its default, nothing else. Structs only grow at their end; bytes
 *   that this library does not know must be zero, otherwise MOE_ERR_ARGUMENT. A NULL parameter
 *   struct means all defaults; only moe_encode_params and moe_layer_params are required. Output
 *   structs need struct_size before the call too; in structs that a callback receives it is the
 *   library's. Structs without it never grow.
 * - A callback's first parameter is the caller's pointer: the field or parameter behind the
 *   callback, named after it ("log", "log_user"); moe_allocator, moe_reader and moe_writer have one
 *   for all. A callback that can stop a call or fail returns bool, true to go on; others return
 *   nothing. NULL: no callback.
 * - A list is read by index, from 0: a function that returns one name gives NULL behind the last, a
 *   function with a status gives MOE_ERR_RANGE.
 * - Text is UTF-8. A function that writes text or an array takes (buffer, capacity, *length) and
 *   sets *length to the length of the whole result. With buffer NULL and capacity 0 it only
 *   measures. If the buffer is too small it returns MOE_ERR_TOO_LONG and writes only *length. Text
 *   lengths exclude the terminating zero; the capacity must include it.
 * - The library copies strings that it is given. Strings that it returns belong to the object they
 *   were read from and live as long as that object: at least until its handle is freed.
 * - Threads: any number of threads may use an environment or a model. One thread at a time may use
 *   a session, chat or layer; a concurrent call that would change it gets MOE_ERR_STATE. Only
 *   moe_session_cancel may be called from any thread at any time.
 * - Handles may be freed in any order, from any thread. What depends on another object keeps it: a
 *   model and a layer their environment, a session its model, a chat its session. The memory of an
 *   object, and whatever the caller lent it (an allocator, a log function, a reader, a model in
 *   memory), is in use until its own handle and those of all that depend on it are freed. No call
 *   may be in progress with a handle that is freed. Every *_free accepts NULL.
 * - The library never exits, aborts, prints or throws. It has no state outside its handles (except
 *   for `isa` of moe_env_params). A calling thread needs 256 KiB of stack.
 * - A callback must return normally: no C++ exception or longjmp may leave it. The library catches
 *   neither, and the process may terminate. Catch the exception in the callback, stop the call, and
 *   rethrow after the call has returned. A log function, an allocator and a reader may be called
 *   while the model is locked: they must not call functions of the library.
 * - After fork() the child may only free what the parent created; its threads, and on a GPU its
 *   device, remain in the parent. Any other use that would compute returns MOE_ERR_STATE. The child
 *   may create and use its own objects.
 */
#ifndef MOE_C_H
#define MOE_C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* On Windows, programs that link the static library define MOE_STATIC; MOE_BUILDING is defined
 * while the library itself is compiled. */
#if defined(_WIN32) && !defined(MOE_STATIC)
#ifdef MOE_BUILDING
#define MOE_API __declspec(dllexport)
#else
#define MOE_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define MOE_API __attribute__((visibility("default")))
#else
#define MOE_API
#endif

/* Marks what will be removed, with a text that names its replacement. It stays for one minor
 * version at least, and after version 1.0 until the next major one; CHANGELOG.md lists it. Define
 * MOE_NO_DEPRECATED to hear nothing of it. */
#if defined(MOE_NO_DEPRECATED)
#define MOE_DEPRECATED(text)
#elif defined(_MSC_VER)
#define MOE_DEPRECATED(text) __declspec(deprecated(text))
#elif defined(__GNUC__)
#define MOE_DEPRECATED(text) __attribute__((deprecated(text)))
#else
#define MOE_DEPRECATED(text)
#endif

/* A struct of the given type with struct_size set and everything else 0. */
#ifdef __cplusplus
} /* a template has C++ linkage */
template <class T>
constexpr T moe_initialised() {
  T value{};
  value.struct_size = sizeof(T);
  return value;
}
extern "C" {
#define MOE_INIT(type) (moe_initialised<type>())
#else
#define MOE_INIT(type) ((type){.struct_size = sizeof(type)})
#endif

/* Result of every fallible call. Numbers never change; new codes are appended to a group. */
typedef enum moe_status {
  MOE_OK = 0,
  /* 1..19: the caller's arguments */
  MOE_ERR_ARGUMENT = 1,    /* null pointer, bad struct_size, unknown option, unknown field set */
  MOE_ERR_RANGE = 2,       /* a number outside its stated range */
  MOE_ERR_SHAPE = 3,       /* shapes that do not match */
  MOE_ERR_NON_FINITE = 4,  /* NaN or infinity where a finite number is required */
  MOE_ERR_STATE = 5,       /* the call is not allowed now (session in use, poisoned, empty) */
  MOE_ERR_TOO_LONG = 6,    /* more tokens than the context holds, or a buffer that is too small */
  MOE_ERR_UNSUPPORTED = 7, /* valid, but this build, machine or model cannot do it */
  /* 20..39: files and data */
  MOE_ERR_IO = 20,        /* a file operation (the text gives errno) or the caller's own failed */
  MOE_ERR_NOT_FOUND = 21, /* no such file, tensor, token or template */
  MOE_ERR_FORMAT = 22,    /* not a file of this kind, or its structure is damaged */
  MOE_ERR_VERSION = 23,   /* written in a newer format version */
  MOE_ERR_CORRUPT = 24,   /* a checksum or the content contradicts the metadata */
  MOE_ERR_TEXT = 25,      /* text that cannot be encoded or decoded */
  /* 40..59: resources */
  MOE_ERR_MEMORY = 40, /* an allocation failed */
  MOE_ERR_BUDGET = 41, /* the memory cap or GPU limit is too small; the text itemises it */
  MOE_ERR_DEVICE = 42, /* device missing, lost or failed */
  MOE_ERR_CANCELLED = 43,
  /* 60..: bugs in this library; please report */
  MOE_ERR_INTERNAL = 60
} moe_status;

#define MOE_ERROR_TEXT_BYTES 400

/* Receives a call's error message. Owned by the caller; may be NULL. Unchanged on success. */
typedef struct moe_error {
  moe_status code;                 /* what the call returned */
  char text[MOE_ERROR_TEXT_BYTES]; /* one line of UTF-8, always terminated */
} moe_error;

/* The name of a status, "MOE_ERR_RANGE" and so on; "unknown status" for an unknown number. Static.
 */
MOE_API const char* moe_status_name(moe_status status);

/* ------------------------------------------------------------------------------------------------
 * 2. VERSION
 * Within a major version the ABI only grows: programs run with any later library, and the library's
 * soname is the major version. While the major version is 0 that holds within a minor version: the
 * soname is "0.1" for 0.1.x. */

#define MOE_VERSION_MAJOR 0
#define MOE_VERSION_MINOR 1
#define MOE_VERSION_PATCH 0

/* Version of the library at run time: major * 1000000 + minor * 1000 + patch. */
MOE_API uint32_t moe_version(void);
/* The same as text, such as "0.1.0". Static. */
MOE_API const char* moe_version_string(void);

/* ------------------------------------------------------------------------------------------------
 * 3. ENVIRONMENT
 * Owns the threads, device, allocator and logger shared by models and sessions. */

typedef struct moe_env moe_env;

/* The caller's allocator. `allocate` returns NULL on failure; `align` is a power of two.
 * `deallocate` receives the size that was requested. Called from any thread that calls the library.
 * On Linux the library may advise the kernel to use large pages for blocks that hold weights. */
typedef struct moe_allocator {
  uint32_t struct_size;
  void* (*allocate)(void* user, size_t bytes, size_t align);   /* NULL: there is no memory */
  void (*deallocate)(void* user, void* pointer, size_t bytes); /* of an earlier `allocate` */
  void* user;                                                  /* the callbacks' first argument */
} moe_allocator;

/* How important a message is. */
typedef enum moe_log_level {
  MOE_LOG_ERROR = 1,
  MOE_LOG_WARNING = 2,
  MOE_LOG_INFO = 3,
  MOE_LOG_DEBUG = 4
} moe_log_level;

/* Receives each message without a newline, possibly from several threads at once. */
typedef void (*moe_log_fn)(void* user, moe_log_level level, const char* text);

/* Tells the nanoseconds since any moment, which stays the same; never runs backwards. Any thread,
 * also several at once. */
typedef uint64_t (*moe_clock_fn)(void* user);

/* The options of an environment. */
typedef struct moe_env_params {
  uint32_t struct_size;
  /* compute threads, including the caller's; 0: as many as affinity and cgroup allow this process;
   * at most 1024 */
  int32_t threads;
  /* NULL: the best one this CPU supports; otherwise a name from moe_isa_name. "amx" requests the
   * tile registers from Linux: afterwards the process cannot set alternate signal stacks that are
   * too small for them (11 KiB). */
  const char* isa;
  /* NULL, "auto" or "cpu": the CPU; "cuda" or "cuda:N": that GPU, or MOE_ERR_DEVICE if it is not
   * usable. A later version's "auto" may mean a usable GPU. */
  const char* device;
  const moe_allocator* allocator; /* NULL: malloc; copied */
  moe_log_fn log;                 /* NULL: silent */
  void* log_user;                 /* its first argument */
  /* upper limit of GPU allocations; 0, or above it: 15/16 of the free memory. Experts that do not
   * fit are offloaded. Not used on the CPU. */
  uint64_t gpu_memory_bytes;
  /* measures the times in results (seconds of generation and of waiting for experts) and decides
   * whether drafting tokens pays; no other result depends on it. NULL: the system's monotonic
   * clock; in a build without an operating system (MOE_OS=none) times are then 0. */
  moe_clock_fn clock;
  void* clock_user; /* its first argument */
} moe_env_params;

/* Creates an environment: starts its threads and opens its device. Any thread. MOE_ERR_ARGUMENT for
 * an unknown device or half an allocator, MOE_ERR_RANGE for threads outside 0..1024,
 * MOE_ERR_UNSUPPORTED for an instruction set that this CPU or build lacks, MOE_ERR_DEVICE for a GPU
 * that is not usable, MOE_ERR_MEMORY. With the defaults:
 *     moe_env* env = NULL;
 *     if (moe_env_create(NULL, &env, &error) != MOE_OK) puts(error.text); */
MOE_API moe_status moe_env_create(const moe_env_params* params, moe_env** out, moe_error* error);
/* Gives up the handle; NULL is allowed. Models and layers made with it keep the environment. */
MOE_API void moe_env_free(moe_env* env);

/* The device, threads and instruction set of an environment. */
typedef struct moe_env_info {
  uint32_t struct_size;
  int32_t threads;    /* that compute, the caller's included */
  const char* device; /* "cpu", or for example "cuda:0 (NVIDIA H200)" */
  const char* isa;    /* "avx512vnni" or another name from moe_isa_name */
} moe_env_info;

/* Describes an environment. Its texts live as long as the environment. Any thread.
 * MOE_ERR_ARGUMENT for a NULL or a wrong struct_size. */
MOE_API moe_status moe_env_get_info(const moe_env* env, moe_env_info* out, moe_error* error);

/* The names of the instruction sets built into this library, best first: "avx512vnni" ... NULL
 * behind the last. Static; any thread:
 *     for (size_t i = 0; moe_isa_name(i) != NULL; ++i) puts(moe_isa_name(i)); */
MOE_API const char* moe_isa_name(size_t index);
/* The names of the weight formats that weights can be rounded to: "ternary2", "int8" ... NULL
 * behind the last. Static; any thread. Models from GGUF files may have others: "iq2_xs" ... */
MOE_API const char* moe_weight_format_name(size_t index);

/* ------------------------------------------------------------------------------------------------
 * 4. MODEL
 * Opening reads metadata only; weights are mapped or read on first use. Immutable. */

typedef struct moe_model moe_model;
typedef struct moe_session_params moe_session_params;

/* How a file is read. */
typedef enum moe_io {
  MOE_IO_AUTO = 0, /* direct if the file is larger than the available memory */
  /* bypasses the page cache (O_DIRECT), so weights are in memory only once. MOE_ERR_UNSUPPORTED if
   * the file system does not support it */
  MOE_IO_DIRECT = 1,
  MOE_IO_BUFFERED = 2 /* through the page cache, which may still hold data that is read again */
} moe_io;

/* How a model is opened. */
typedef struct moe_model_params {
  uint32_t struct_size;
  /* 1: map uncompressed weights instead of reading them. The file must not change while the model
   * is open: accessing a truncated mapping kills the process. */
  int32_t map_weights;
  int32_t skip_checksums; /* 1: do not verify checksums of weights (structure is always checked) */
  int32_t reserved;       /* zero */
  /* cap on weights, KV caches and scratch memory of this model and its sessions; 0: none. The
   * remainder is an expert cache: missing experts are read by up to four threads of the model;
   * results do not change. Mapped weights and models in memory count in full. If the cap is
   * too small: MOE_ERR_BUDGET with the itemised sum and the smallest possible cap. */
  uint64_t memory_bytes;
  /* with a cap: the session that must fit; NULL: the default session */
  const moe_session_params* session;
  moe_io io; /* files only; MOE_IO_DIRECT with map_weights, memory or a reader: MOE_ERR_ARGUMENT */
  /* With a cap, from the first session on. 0: while nothing else is read, the threads also read
   * experts into free memory of the cache, one at a time. 1: they read only what a token needs. */
  int32_t lazy_experts;
} moe_model_params;

/* Source of bytes that are neither a file nor in memory. `read` reads exactly `bytes` bytes at
 * `offset`, or returns false. A model calls it from any thread, also after the open call has
 * returned. */
typedef struct moe_reader {
  uint32_t struct_size;
  uint64_t size; /* of the whole, in bytes */
  bool (*read)(void* user, uint64_t offset, void* buffer, size_t bytes);
  void* user; /* its first argument */
} moe_reader;

/* Opens a model file and checks its structure. Any thread. MOE_ERR_NOT_FOUND, MOE_ERR_IO,
 * MOE_ERR_FORMAT (no model file, or a damaged one), MOE_ERR_VERSION (made by a newer moe),
 * MOE_ERR_CORRUPT (a checksum of the metadata), MOE_ERR_UNSUPPORTED (something that this build
 * lacks), MOE_ERR_BUDGET (see memory_bytes), MOE_ERR_MEMORY:
 *     moe_model_params params = MOE_INIT(moe_model_params);
 *     params.memory_bytes = 2000000000;
 *     moe_status status = moe_model_open(env, "olmoe.moe", &params, &model, &error); */
MOE_API moe_status moe_model_open(moe_env* env, const char* path, const moe_model_params* params,
                                  moe_model** out, moe_error* error);
/* Opens a model file in memory; errors as moe_model_open, without those of files. `data` must
 * remain valid and unchanged until the model and its sessions are freed. If it is
 * 64-byte aligned it is used in place, otherwise it is copied in parts on use. */
MOE_API moe_status moe_model_open_memory(moe_env* env, const void* data, size_t size,
                                         const moe_model_params* params, moe_model** out,
                                         moe_error* error);
/* Opens a model file that `reader`, which is copied, reads; errors as moe_model_open. MOE_ERR_IO
 * when it fails, also in later calls that need weights. */
MOE_API moe_status moe_model_open_reader(moe_env* env, const moe_reader* reader,
                                         const moe_model_params* params, moe_model** out,
                                         moe_error* error);
/* Gives up the handle; NULL is allowed. Sessions keep the model. */
MOE_API void moe_model_free(moe_model* model);

/* A description of a model, as its file has it. */
typedef struct moe_model_info {
  uint32_t struct_size;
  int32_t vocab_size;        /* tokens, and floats in a row of logits */
  int32_t d_model;           /* width of the hidden states */
  int32_t n_layers;          /* all of them */
  int32_t n_moe_layers;      /* of these, with experts */
  int32_t context_length;    /* most positions of a text */
  int32_t bos_token;         /* begins texts; -1: none */
  int32_t n_eos_tokens;      /* end-of-text tokens */
  const int32_t* eos_tokens; /* n_eos_tokens of them */
  const char* name;          /* as the checkpoint is called */
  uint64_t n_parameters;     /* in all */
  /* upper bound for one token: a threshold router counts with its maximum; moe_routing_stats gives
   * the actual number */
  uint64_t n_active_parameters;
  uint64_t weight_bytes;    /* all weights in memory, padding included */
  uint64_t bytes_per_token; /* weights read per token, including routers and head */
  uint64_t file_bytes;      /* size of the model file */
  /* The head's predictions: "tokens"; for an encoder also "classes" (of the whole text), "tags" (of
   * each token), "span" (where an answer begins and ends) or "none". */
  const char* head;
  int32_t n_outputs;  /* vocab_size, the number of labels, 2 or 0 */
  int32_t is_encoder; /* 1: only for moe_session_encode; cannot generate */
  int32_t mask_token; /* marks a token that an encoder is to predict; -1: none */
  int32_t reserved;   /* 0 */
  /* 1: for moe_session_translate. The first n_encoder_layers layers are the encoder; context_length
   * and bytes_per_token refer to the decoder's text. */
  int32_t is_encoder_decoder;
  int32_t n_encoder_layers; /* 0: not an encoder-decoder */
  int32_t source_length;    /* maximum tokens of a source */
  int32_t start_token;      /* begins each text of the decoder; -1: not an encoder-decoder */
  /* The model file's settings for vectors of texts (moe_session_encode). */
  const char* pooling;    /* "mean", "first" or "last"; "": nothing, and there are no prompts */
  int32_t normalized;     /* 1: to length 1 */
  int32_t vector_tokens;  /* maximum tokens of a text; 0: as many as the context holds */
  int32_t n_prompts;      /* texts to put before others (moe_model_get_prompt) */
  int32_t default_prompt; /* index of the one for texts of no other kind; -1: none */
  /* xxh64 of the file's metadata, which holds the checksums of all weights: tells model files apart
   * (by accident, not by intent) */
  uint64_t file_hash;
  const char* device; /* that runs it, as in moe_env_info */
  /* 1: beside its layers there is one that guesses tokens after the next one (multi-token
   * prediction), which moe_generate_params.max_draft uses. 0 on devices other than the CPU. */
  int32_t n_predictions;
  int32_t reserved2; /* 0 */
} moe_model_info;

/* Describes a model. Texts and arrays live as long as the model. Any thread. MOE_ERR_ARGUMENT. */
MOE_API moe_status moe_model_get_info(const moe_model* model, moe_model_info* out,
                                      moe_error* error);

/* Prompt `index`, from 0: its name, such as "query", and its text. Both live as long as the model.
 * MOE_ERR_RANGE if there is none. Models that are made for vectors may want one before every text;
 * the caller puts it there. */
MOE_API moe_status moe_model_get_prompt(const moe_model* model, int32_t index, const char** name,
                                        const char** text, moe_error* error);

/* The shape of one layer; moe_model_get_router describes its router. */
typedef struct moe_model_layer_info {
  uint32_t struct_size;
  int32_t n_heads;        /* 0, like the next two: the layer has no attention */
  int32_t n_kv_heads;     /* of keys and values */
  int32_t head_dim;       /* width of a head */
  int32_t window;         /* 0: unlimited */
  int32_t d_ff;           /* of the dense FFN or of one expert; 0: the layer has no FFN */
  int32_t n_experts;      /* 0: dense */
  int32_t n_active;       /* maximum experts per (sub-)token */
  int32_t n_subheads;     /* heads of MH-MoE, otherwise 1 */
  int32_t shared_d_ff;    /* 0: no shared expert */
  const char* activation; /* "silu" ...; "" for a layer without an FFN */
  int32_t n_sublayers;    /* X-MoE's sub-layers per expert; 0: an expert is one FFN */
  int32_t has_head;       /* MH-MoE: 1 if a head layer precedes the split into sub-tokens */
  int32_t has_merge;      /* MH-MoE: 1 if a merge layer follows the experts */
  int32_t n_cross_heads;  /* of cross attention to the encoder's output; 0: none */
  /* Floats per position with MOE_KV_LATENT (kv_lora_rank + rotated dimensions). 0: not possible. */
  int32_t kv_latent;
  /* The token mixer that the layer has in place of attention or, if n_heads is not 0, beside it:
   * "short_conv"; "" for none. */
  const char* mixer;
  uint64_t state_bytes; /* what a session keeps of the layer with a mixer, at one position */
} moe_model_layer_info;

/* Describes layer `layer`, from 0. Any thread. MOE_ERR_RANGE if there is none, MOE_ERR_ARGUMENT. */
MOE_API moe_status moe_model_get_layer_info(const moe_model* model, int32_t layer,
                                            moe_model_layer_info* out, moe_error* error);

/* How a layer selects experts for a (sub-)token, and how it weighs them: as a model file says
 * (moe_model_get_router), in place of that in a session (moe_session_set_router), or in a layer of
 * its own (moe_layer_params). A router whose softmax or sigmoid p is over all experts weighs a
 * selected one by p. */
typedef struct moe_router {
  uint32_t struct_size;
  int32_t k; /* experts to select; 0: 1, in a session as in the file */
  /* "topk" (the k largest logits), "threshold" (by descending p until their sum reaches
   * `threshold`), "cosine" (the k largest cosines, or by threshold if that is not 0), "sigmoid",
   * "sparsemixer", "hash", "base" (moe_router_kind). NULL: "topk", in a session as in the file. */
  const char* kind;
  /* weights of the selected: "raw" (p itself), "renormalised" (p divided by their sum), "chosen"
   * (softmax over them alone), "one". NULL: "raw", for a cosine router what suits its gate */
  const char* weights;
  const char* gate;   /* what p is of a cosine router: "softmax" or "sigmoid"; NULL: "softmax" */
  float threshold;    /* of the kind "threshold", in 0..1; 0: the best expert alone */
  int32_t min_k;      /* with a threshold: at least so many; 0: 1, in a session as in the file */
  int32_t max_k;      /* with a threshold: at most so many; 0: all, in a session as in the file */
  float scale;        /* factor of all weights; 0: 1 */
  int32_t n_groups;   /* "topk", "sigmoid": groups of neighbouring experts; 0: 1 */
  int32_t top_groups; /* best groups to select from; 0: 1 */
  float tau;          /* "cosine": temperature, above 0; 0: 1 */
  float cosine_eps;   /* "cosine": least norm of a vector; 0: 1e-4 */
  float jitter;       /* "sparsemixer": half the relative distance that masks; 0: 0.01 */
  /* Capacity factor, the papers' gamma: ceil(gamma n / n_experts) of the n (sub-)tokens of a call
   * per expert. 0: no limit, in a session as in the file. INFINITY: no limit. */
  float gamma;
  int32_t min_capacity; /* least (sub-)tokens per expert with a gamma; 0: 1, or as in the file */
  float resident;       /* in 0..1, for a memory cap: see moe_session_set_router; 0: off */
} moe_router;

/* Reads a router as people write it: a kind with its number, then any of the names of weights,
 * gate=NAME and the other fields as NAME=NUMBER, separated by commas:
 *   "topk:4"                    the 4 most probable experts
 *   "topk:2,renormalised"       with weights that sum to 1
 *   "threshold:0.9,max_k=8"     experts until their probabilities reach 0.9, at most 8
 *   "cosine:1,tau=0.07"
 *   "gamma=1.25"                a capacity alone; "gamma=inf": none; "": nothing said
 * Ranges are checked where the router is used. The texts in `out` are static. Any thread.
 * MOE_ERR_ARGUMENT lists what is accepted; MOE_ERR_RANGE for a 0 that would mean a default:
 *     moe_router router = MOE_INIT(moe_router);
 *     status = moe_router_parse("threshold:0.9", &router, &error);
 *     if (status == MOE_OK) status = moe_session_set_router(session, &router, &error); */
MOE_API moe_status moe_router_parse(const char* text, moe_router* out, moe_error* error);
/* The reverse: the shortest text that moe_router_parse reads as `router`, without what is a layer's
 * default; "" if that is all. Any thread. MOE_ERR_ARGUMENT for an unknown kind, weights or gate;
 * MOE_ERR_TOO_LONG. */
MOE_API moe_status moe_router_format(const moe_router* router, char* text, size_t capacity,
                                     size_t* n_bytes, moe_error* error);
/* The names of the kinds of routers; NULL behind the last. Static; any thread. */
MOE_API const char* moe_router_kind(size_t index);

/* The router of layer `layer` as the file describes it; numbers that its kind does not have are 0.
 * Any thread. MOE_ERR_RANGE if there is no such layer, MOE_ERR_UNSUPPORTED if it is dense,
 * MOE_ERR_ARGUMENT. */
MOE_API moe_status moe_model_get_router(const moe_model* model, int32_t layer, moe_router* out,
                                        moe_error* error);

/* One stored matrix or vector, as the file describes it. */
typedef struct moe_tensor_info {
  uint32_t struct_size;
  int32_t layer;           /* -1: none; n_layers of moe_model_info: one that guesses, for drafts */
  int32_t expert;          /* -1: none */
  int32_t rows;            /* outputs */
  int32_t cols;            /* inputs */
  const char* part;        /* "embedding", "attention", "experts" ... */
  const char* role;        /* "q", "gate", "norm" ... */
  const char* format;      /* "ternary2" ... */
  const char* scale;       /* "none", "tensor", "row", "group" */
  const char* activations; /* "f32", "a8", "a8_block", "a8_group" */
  const char* codec;       /* "none", "zstd" */
  uint64_t bytes;          /* in memory */
  uint64_t file_offset;    /* of its segment */
} moe_tensor_info;

/* The number of stored matrices and vectors; 0 for NULL. Any thread. */
MOE_API size_t moe_model_tensor_count(const moe_model* model);
/* Describes one of them. Its texts are static. Any thread. MOE_ERR_RANGE, MOE_ERR_ARGUMENT. */
MOE_API moe_status moe_model_get_tensor_info(const moe_model* model, size_t index,
                                             moe_tensor_info* out, moe_error* error);

/* One line of the memory account of a model with sessions. */
typedef struct moe_memory_line {
  const char* what; /* static text such as "expert weights" */
  uint64_t bytes;
} moe_memory_line;

/* Itemises the memory of the model with n_sessions sessions (1 or more) of these parameters (NULL:
 * defaults), which need not exist; sessions that exist are not counted. In bytes; the sum is what
 * all of them take while one is evaluated. (buffer, capacity, *n_lines) as for all arrays.
 * MOE_ERR_RANGE for n_sessions below 1 and for parameters outside their range; MOE_ERR_TOO_LONG.
 * Any thread. */
MOE_API moe_status moe_model_get_memory(const moe_model* model, const moe_session_params* params,
                                        int32_t n_sessions, moe_memory_line* lines, size_t capacity,
                                        size_t* n_lines, moe_error* error);

/* The memory that sessions get under the model's cap. */
typedef struct moe_memory_plan {
  uint32_t struct_size;
  int32_t chunk;         /* rows evaluated at once, when all sessions exist */
  uint64_t cap_bytes;    /* 0: none */
  uint64_t needed_bytes; /* the sum of moe_model_get_memory */
  /* The smallest cap under which all sessions can be created, one by one or from several threads,
   * and evaluated; with few experts in memory. Without a cap: needed_bytes. */
  uint64_t least_bytes;
  uint64_t expert_bytes;  /* weights of all experts */
  uint64_t n_experts;     /* in all layers */
  uint64_t n_in_memory;   /* experts that fit in memory at the same time, beside all sessions */
  uint64_t session_bytes; /* of each session: further ones take it from the experts in memory */
} moe_memory_plan;

/* The plan for n_sessions sessions (1 or more) with these parameters (NULL: defaults), as if no
 * others existed. Under a cap of at least least_bytes, none of them is refused: automatic chunks
 * (moe_session_params.chunk 0) become smaller as sessions are created, and larger as they are
 * freed. The sessions share the memory of a pass. Passes of several threads at the same time take
 * more of it from the expert cache, up to a sixth of the cache for each, or wait for each other. On
 * a GPU each session has its own, and automatic chunks do not follow the cap. MOE_ERR_RANGE for
 * n_sessions below 1 and for parameters outside their range; MOE_ERR_TOO_LONG. Any thread.
 *
 *   moe_memory_plan plan = {.struct_size = sizeof plan};
 *   moe_model_get_memory_plan(model, NULL, 16, &plan, &error);
 *   printf("16 sessions need %llu bytes\n", (unsigned long long)plan.least_bytes);
 */
MOE_API moe_status moe_model_get_memory_plan(const moe_model* model,
                                             const moe_session_params* params, int32_t n_sessions,
                                             moe_memory_plan* out, moe_error* error);

/* Memory of this machine, or of this process's memory cgroup if that is smaller. */
typedef struct moe_memory_info {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t total_bytes;     /* in all */
  uint64_t available_bytes; /* available without swapping; the page cache counts as free */
  uint64_t budget_bytes;    /* 15/16 of it: the cap that moe_model_suggest_memory suggests */
} moe_memory_info;

/* MOE_ERR_UNSUPPORTED if the system does not report it. */
MOE_API moe_status moe_get_memory_info(moe_memory_info* out, moe_error* error);

/* The memory_bytes to open this model with for n_sessions sessions (1 or more) with these
 * parameters (NULL: defaults). 0 if everything fits in 15/16 of the memory available now, or in all
 * of it when a cap of 15/16 would be too small; otherwise that 15/16. Also 0 on a GPU, for mapped
 * models and models in memory, and if the system does not report its memory. */
MOE_API moe_status moe_model_suggest_memory(const moe_model* model,
                                            const moe_session_params* params, int32_t n_sessions,
                                            uint64_t* memory_bytes, moe_error* error);

/* Reads every weight once and verifies checksums, codes and scales; takes as long as reading the
 * file. Under a cap it takes memory from the expert cache, and calls that create sessions
 * wait for it; MOE_ERR_BUDGET if the sessions leave too little. */
MOE_API moe_status moe_model_verify(moe_model* model, moe_error* error);

/* ------------------------------------------------------------------------------------------------
 * 5. TOKENIZER
 * Belongs to the model and lives as long as that: until its handle and all its sessions are freed.
 * Any thread. */

typedef struct moe_tokenizer moe_tokenizer;

/* The model's tokenizer; NULL if it has none (token ids only). */
MOE_API const moe_tokenizer* moe_model_tokenizer(const moe_model* model);

/* Special tokens around a text: the model file defines which tokens precede a text that begins a
 * sequence (BOS for many models, none for others) and which follow it (formats/README.md).
 * moe_tokenizer_encode adds them to the text, and moe_session_perplexity to each window. Encode a
 * continuation with MOE_ENCODE_NO_SPECIAL. Chat templates write their own. */
enum {
  MOE_ENCODE_NO_SPECIAL = 1, /* add nothing before or after the text */
  /* convert special tokens spelled out in the text to their ids; otherwise text can never produce
   * them */
  MOE_ENCODE_PARSE_SPECIAL = 2
};

/* The token ids of a text of n_bytes bytes, which need not be terminated. `flags`: MOE_ENCODE_*.
 * MOE_ERR_TOO_LONG with *n_tokens if `capacity` is too small, MOE_ERR_TEXT for text that the
 * tokenizer cannot encode, MOE_ERR_ARGUMENT, MOE_ERR_MEMORY. Invalid UTF-8 is first replaced by
 * U+FFFD, except by a tokenizer of kind "bytes", whose tokens are the bytes themselves. */
MOE_API moe_status moe_tokenizer_encode(const moe_tokenizer* tokenizer, const char* text,
                                        size_t n_bytes, uint32_t flags, int32_t* tokens,
                                        size_t capacity, size_t* n_tokens, moe_error* error);

/* Two texts in one sequence, such as a question and a passage. */
typedef struct moe_token_pair {
  uint32_t struct_size;
  size_t n_tokens; /* of both, with the special tokens */
  size_t second; /* where the second text's type begins, for moe_encode_params; 0: there is none */
  size_t n_cut;  /* tokens of the texts that were left out */
} moe_token_pair;

/* The token ids of two texts for an encoder that reads them together, with the special tokens
 * before, between and after them. Of more than max_tokens (0: any number) the ends are left out,
 * those of the longer text first, as `tokenizers` truncates. `flags`: 0 or
 * MOE_ENCODE_PARSE_SPECIAL. MOE_ERR_TOO_LONG with out->n_tokens if `capacity` is too small, and if
 * max_tokens leaves nothing of the texts; MOE_ERR_UNSUPPORTED if the model file does not say how
 * two texts are encoded; otherwise as moe_tokenizer_encode. */
MOE_API moe_status moe_tokenizer_encode_pair(const moe_tokenizer* tokenizer, const char* first,
                                             size_t n_first_bytes, const char* second,
                                             size_t n_second_bytes, uint32_t flags,
                                             size_t max_tokens, int32_t* tokens, size_t capacity,
                                             moe_token_pair* out, moe_error* error);

enum { MOE_DECODE_SKIP_SPECIAL = 1 /* special tokens give no text */ };

/* The text of token ids in UTF-8; bytes that form no character become U+FFFD. `flags`:
 * MOE_DECODE_*. MOE_ERR_TOO_LONG with *n_bytes if `capacity` is too small, MOE_ERR_RANGE for a
 * token outside the vocabulary, MOE_ERR_ARGUMENT, MOE_ERR_MEMORY. */
MOE_API moe_status moe_tokenizer_decode(const moe_tokenizer* tokenizer, const int32_t* tokens,
                                        size_t n_tokens, uint32_t flags, char* text,
                                        size_t capacity, size_t* n_bytes, moe_error* error);

/* A token as the vocabulary spells it ("Ġthe"), terminated; NULL if the id is out of range. */
MOE_API const char* moe_tokenizer_piece(const moe_tokenizer* tokenizer, int32_t token);

/* ------------------------------------------------------------------------------------------------
 * 6. SESSION: EVALUATION
 * One text being evaluated: a KV cache and a position. */

typedef struct moe_session moe_session;

/* How keys and values are stored. */
typedef enum moe_kv_type {
  MOE_KV_DEFAULT = 0, /* f16 */
  MOE_KV_F16 = 1,
  MOE_KV_INT8 = 2, /* one scale per head and position; half the memory. Encoders always use f32 */
  MOE_KV_F32 = 3,  /* CPU only: twice the memory, no rounding */
  /* CPU only, for models with multi-head latent attention (DeepSeek, Kimi-K2): stores the latent
   * (kv_lora_rank) that keys and values are computed from, as f16. Uses a fraction of the memory;
   * long prompts take longer. MOE_ERR_UNSUPPORTED for other models. The first such session creates
   * f16 matrices that remain allocated with the model. */
  MOE_KV_LATENT = 4
} moe_kv_type;

/* The options of a session: how much text it has room for, and how it keeps it. */
struct moe_session_params {
  uint32_t struct_size;
  /* Positions of the KV cache, at most the model's context length; 0: the context length, at most
   * 4096. Also the limit of an encoder-decoder's source. */
  int32_t context;
  /* rows evaluated at once during prefill, at most 4096. 0: 256; on a GPU with enough memory 1024;
   * under a memory cap 32 to 4096, depending on the memory left, which changes as sessions come and
   * go; with an expert capacity, an encoder or an encoder-decoder the context, at most 4096 */
  int32_t chunk;
  moe_kv_type kv; /* of its cache */
  /* encoder-decoder: the largest beam of its searches, 1..64; 0: 5. Each hypothesis has its own KV
   * cache. Must be 0 for any other model */
  int32_t max_beam;
};

/* Creates an empty session. Any thread. MOE_ERR_RANGE for a context or chunk outside its range,
 * MOE_ERR_UNSUPPORTED for a kv type that model or device lack, MOE_ERR_BUDGET if the model's cap
 * leaves too little (the text says how much is needed), MOE_ERR_MEMORY, MOE_ERR_ARGUMENT. */
MOE_API moe_status moe_session_create(moe_model* model, const moe_session_params* params,
                                      moe_session** out, moe_error* error);
/* Gives up the handle; NULL is allowed. A chat keeps its session. */
MOE_API void moe_session_free(moe_session* session);

/* The rows of logits that a call writes, of vocab_size floats each. */
typedef enum moe_rows {
  MOE_ROWS_NONE = 0, /* none; `logits` must be NULL */
  MOE_ROWS_LAST = 1, /* one: of the last token */
  MOE_ROWS_ALL = 2   /* of every token, in order */
} moe_rows;

/* Appends `n_tokens` tokens to the text; 0, with `tokens` NULL or not, changes nothing. Results do
 * not depend on how the text is split into calls. logits: the rows that `rows` names:
 *     moe_session_eval(session, tokens, n, MOE_ROWS_LAST, logits, &error);
 * MOE_ERR_TOO_LONG, with nothing changed, if the context cannot hold the tokens. After
 * MOE_ERR_CANCELLED or an error found while computing, the session is at the end of the last
 * completed chunk; some of n_tokens rows of logits may have been written.
 *
 * MOE_ERR_NON_FINITE is such an error: a requested logit, a router score or the state of a mixer
 * (moe_model_layer_info) is NaN or infinite,
 * which finite but huge weights can cause. Rows whose logits are not requested are not checked.
 * Reading the logits of a later token that attends to such a row then fails, also in
 * moe_session_sample and moe_session_generate; moe_session_rewind to an earlier position recovers.
 */
MOE_API moe_status moe_session_eval(moe_session* session, const int32_t* tokens, size_t n_tokens,
                                    moe_rows rows, float* logits, moe_error* error);

/* Log-probabilities of given tokens without rows of logits: appends the tokens as moe_session_eval
 * does and writes for each the natural logarithm of its probability given the preceding text.
 * n_logprobs must be n_tokens, or n_tokens - 1 in an empty session (0 for no tokens), because its
 * first token has no predecessor; otherwise MOE_ERR_ARGUMENT. Each value is the log-softmax of
 * moe_session_eval's row, summed in double and rounded to the nearest float. Memory use does not
 * grow with text or vocabulary. Errors as moe_session_eval; some values may then have been written.
 */
MOE_API moe_status moe_session_score(moe_session* session, const int32_t* tokens, size_t n_tokens,
                                     float* logprobs, size_t n_logprobs, moe_error* error);

/* Appends n_tokens[i] >= 1 tokens to session i, all `n` distinct sessions of one model together;
 * n_tokens NULL: one token to each. `tokens` concatenates the tokens of all sessions in order.
 * logits: NULL or (n, vocab_size), of each session's last token. Each session gets exactly what
 * moe_session_eval would give it. A server can prefill a long prompt in slices while it decodes
 * other sessions.
 *
 * The first session's chunk (moe_session_params) limits the rows of one pass; a call with more
 * rows takes several passes. With an expert capacity each session is routed separately, as in a
 * call of its own: MOE_ERR_TOO_LONG if it has more tokens than fit in one pass. MOE_ERR_STATE if a
 * session is in use or listed twice. MOE_ERR_NON_FINITE as moe_session_eval. After a failure in its
 * only pass no session has advanced, and some rows of logits may have been written. On a GPU one
 * token for each of up to 32 sessions is recorded and replayed; otherwise kernels are launched one
 * by one. */
MOE_API moe_status moe_sessions_eval(moe_session* const* sessions, const int32_t* tokens,
                                     const size_t* n_tokens, size_t n, float* logits,
                                     moe_error* error);

/* Pooling to one vector per text. */
typedef enum moe_pooling {
  /* as the model file says, the mean if it says nothing; for texts of at most
   * moe_model_info.vector_tokens tokens */
  MOE_POOL_DEFAULT = 0,
  MOE_POOL_MEAN = 1,  /* the mean over all tokens, including special ones */
  MOE_POOL_FIRST = 2, /* the first token's vector */
  MOE_POOL_LAST = 3   /* the last token's */
} moe_pooling;

/* Length of a pooled vector. */
typedef enum moe_normalize {
  MOE_NORMALIZE_DEFAULT = 0, /* as the model file says, off if it says nothing */
  MOE_NORMALIZE_OFF = 1,     /* as it is */
  MOE_NORMALIZE_ON = 2       /* 1, so that the dot product of two vectors is their cosine */
} moe_normalize;

/* The outputs of moe_session_encode. NULL: not requested. */
typedef struct moe_encode_params {
  uint32_t struct_size;
  moe_pooling pooling; /* of `pooled` */
  float* hidden;       /* (n_tokens, d_model): hidden states after the final norm */
  float* pooled;       /* (d_model) */
  float* outputs;      /* (n_rows, n_outputs) of the head; "classes": one row, of the text */
  /* n_rows ascending token indices to write outputs for. NULL: all tokens. NULL for "classes". */
  const int32_t* rows;
  size_t n_rows;           /* if `rows` is NULL: n_tokens, or 1 for "classes" */
  moe_normalize normalize; /* of `pooled` */
  int32_t reserved;        /* zero */
  size_t second;           /* the first token of a second text (moe_token_pair); 0: there is none */
} moe_encode_params;

/* Runs the model over a text without changing the session. In an encoder every token sees every
 * other. In a decoder a token sees the tokens before it, including those in the session; the text
 * may fill the rest of the context, and with `hidden` NULL one chunk of hidden states is allocated.
 * MOE_ERR_UNSUPPORTED for outputs of a decoder (use moe_session_eval) or of a model without a head,
 * and for a second text that the model does not tell apart. MOE_ERR_TOO_LONG for more
 * tokens than the context has room for, than an encoder's chunk (by default the context, at most
 * 4096), or, with MOE_POOL_DEFAULT, than vector_tokens; nothing is written then. MOE_ERR_NON_FINITE
 * if a requested value is NaN or infinite. After that and after MOE_ERR_CANCELLED the arrays are
 * undefined. Do not pad: pass one text at a time.
 */
MOE_API moe_status moe_session_encode(moe_session* session, const int32_t* tokens, size_t n_tokens,
                                      const moe_encode_params* params, moe_error* error);

/* Called from time to time; the caller's parameter says what is counted. Return false to end the
 * call with MOE_ERR_CANCELLED. */
typedef bool (*moe_progress_fn)(void* user, uint64_t done, uint64_t total, const char* what);

/* When a beam search ends, and which finished texts it returns. */
typedef enum moe_beam_stop {
  /* when `beam` texts have finished; later ones of the same step are rejected (fairseq) */
  MOE_BEAM_STOP_COUNT = 0,
  /* when no text can still beat the worst of the `beam` best finished ones (transformers,
   * early_stopping=False) */
  MOE_BEAM_STOP_BOUND = 1,
  /* after the step in which `beam` texts have finished; returns the best of them (transformers 5,
   * early_stopping=True) */
  MOE_BEAM_STOP_STEP = 2
} moe_beam_stop;

/* The score of a finished text. */
typedef enum moe_beam_score {
  MOE_BEAM_SCORE_POWER = 0, /* its sum of log-probabilities / tokens^length_penalty */
  MOE_BEAM_SCORE_SUM = 1    /* the plain sum; length_penalty must be 0 */
} moe_beam_score;

/* How a beam search runs. Lengths exclude the end-of-text token. */
typedef struct moe_translate_params {
  uint32_t struct_size;
  int32_t beam;       /* 0: 5, or the session's max_beam if smaller */
  int32_t n_best;     /* texts to return, at most `beam`; 0: 1 */
  int32_t min_tokens; /* 0: 1; -1: no minimum, a text may be empty */
  int32_t max_tokens; /* maximum length; 0: 256, or context - 1 if smaller */
  /* alpha: a text's score is its sum of log-probabilities / tokens^alpha, where tokens includes the
   * end-of-text token; 0: 1 */
  float length_penalty;
  moe_beam_score score; /* what length_penalty applies to */
  moe_beam_stop stop;   /* when the search ends */
  /* Forced beginning of every text, such as a language token. NULL: as in the model file. */
  const int32_t* prefix;
  size_t n_prefix;          /* its tokens */
  moe_progress_fn progress; /* before each token: tokens, max_tokens, "translate" */
  void* progress_user;      /* its first argument */
} moe_translate_params;

/* One text that moe_session_translate found. */
typedef struct moe_translation {
  uint32_t struct_size;
  float score; /* see moe_beam_score; higher is better */
  /* without the start token, with the end-of-text token. Owned by the session; valid until its next
   * translation or until it is freed */
  const int32_t* tokens;
  size_t n_tokens; /* in `tokens` */
} moe_translation;

/* The best texts that an encoder-decoder generates for a source. `source` includes the special
 * tokens the model was trained with (moe_tokenizer_encode without flags adds them). Beam search:
 * each step extends every running text by every token except padding, and sorts the extensions by
 * their sum of log-probabilities; ties go to the better text, then to the lower token. Of the best
 * 2 beam extensions, an end-of-text token among the first `beam` finishes its text, a lower one is
 * discarded, and the best `beam` others continue. A beam of 1 is greedy. *n_texts: how many were
 * found, at most n_best (moe_session_get_translation).
 *
 * Afterwards the session has read the source and is empty. MOE_ERR_UNSUPPORTED for any other model.
 * MOE_ERR_RANGE for a beam outside 1..64 or above max_beam, n_best above the beam, min_tokens above
 * max_tokens, a length penalty outside -100..100, or if no text finished. MOE_ERR_TOO_LONG for more
 * source tokens than the model, the context or the chunk allows, or if max_tokens and the start
 * token exceed the context. */
MOE_API moe_status moe_session_translate(moe_session* session, const int32_t* source,
                                         size_t n_source, const moe_translate_params* params,
                                         size_t* n_texts, moe_error* error);
/* Text `index` of the session's last translation, best first. MOE_ERR_RANGE behind the last. */
MOE_API moe_status moe_session_get_translation(const moe_session* session, size_t index,
                                               moe_translation* out, moe_error* error);

/* Reads a source, replacing the previous one, and empties the session. Afterwards the session works
 * like a decoder's: its text begins with start_token of moe_model_info and attends to the source;
 * moe_session_score scores a given translation, moe_session_generate samples one. Without a source
 * these return MOE_ERR_STATE. hidden: NULL, or (n_source, d_model) for the encoder's output. Errors
 * as moe_session_translate; MOE_ERR_NON_FINITE if `hidden`, which is then written, is not finite.
 * Invalid arguments change nothing; after any other failure there is no source. */
MOE_API moe_status moe_session_read_source(moe_session* session, const int32_t* source,
                                           size_t n_source, float* hidden, moe_error* error);

/* The number of tokens evaluated so far; 0 for NULL. */
MOE_API int32_t moe_session_position(const moe_session* session);
/* The most tokens that the session holds, of an encoder the most that a text may have: its chunk
 * limits them as well. 0 for NULL. */
MOE_API int32_t moe_session_context(const moe_session* session);

/* Drops all positions from `position` on, for example to reuse a common prefix. If layers have a
 * mixer with a state, the next call evaluates the tokens after the nearest kept state again;
 * results are the same bits as without the rewind. Position 0 also clears a device fault.
 * MOE_ERR_RANGE for a position beyond the text, MOE_ERR_STATE. */
MOE_API moe_status moe_session_rewind(moe_session* session, int32_t position, moe_error* error);

/* Destination of a saved session: `write` receives its bytes in order, and returns false when it
 * fails. */
typedef struct moe_writer {
  uint32_t struct_size;
  bool (*write)(void* user, const void* bytes, size_t n_bytes); /* the next n_bytes */
  void* user;                                                   /* its first argument */
} moe_writer;

/* Writes the session's text with its keys and values, so that another process or device can resume
 * it without evaluating the text again. The size is about that of the used positions in the KV
 * cache. What a layer that guesses has read is saved too, and devices without it skip it. The
 * header identifies the model file by a hash. Routers, statistics and logits are not saved: logits
 * of the last token are recomputed from that token alone, and differ if a router has a capacity.
 * MOE_ERR_UNSUPPORTED for an encoder or an encoder-decoder; MOE_ERR_IO if the writer failed. */
MOE_API moe_status moe_session_save(moe_session* session, const moe_writer* writer,
                                    moe_error* error);

/* Replaces the session's text by a saved one, which may be untrusted. MOE_ERR_FORMAT: not a saved
 * session, truncated or extended. MOE_ERR_VERSION. MOE_ERR_CORRUPT: a wrong checksum or an invalid
 * token. MOE_ERR_ARGUMENT: another model file, another KV type or, if positions depend on it
 * (LongRoPE), another context. MOE_ERR_TOO_LONG: the context is too small. Keys and values are not
 * validated: forged ones with a valid checksum give nonsense or a later MOE_ERR_NON_FINITE. If the
 * first 64 bytes are rejected the session is unchanged; after any other failure it is empty. */
MOE_API moe_status moe_session_load(moe_session* session, const moe_reader* reader,
                                    moe_error* error);

/* A copy of a session: same model, text, parameters and router, but no shared mutable state. The
 * two continue independently and may be freed in any order. Counters and callbacks are not copied.
 * Counts against the cap like any session: MOE_ERR_BUDGET. MOE_ERR_UNSUPPORTED for an
 * encoder-decoder. */
MOE_API moe_status moe_session_fork(moe_session* session, moe_session** out, moe_error* error);

/* Replaces the text of `target`, another session of the same model, by the first `n_positions`
 * tokens of `source` with their keys and values: a text that begins as another's is continued
 * without evaluating the beginning again, to the same bits. The source and the routers of both are
 * unchanged. MOE_ERR_RANGE for more positions than the source has, MOE_ERR_TOO_LONG for more than
 * the target's context, MOE_ERR_ARGUMENT for another model or KV type or, if positions depend on
 * it (LongRoPE), another context, MOE_ERR_UNSUPPORTED for an encoder or an encoder-decoder: then
 * nothing has changed. After other errors the target is empty. */
MOE_API moe_status moe_session_copy(moe_session* source, int32_t n_positions, moe_session* target,
                                    moe_error* error);

/* Makes the session's current call return MOE_ERR_CANCELLED within one layer's time. Any thread.
 * Without a current call it does nothing. */
MOE_API void moe_session_cancel(moe_session* session);

/* How well a model predicts a text. */
typedef struct moe_perplexity {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  uint64_t n_scored; /* tokens scored */
  double mean_nll;   /* mean negative log-probability, nats per token */
  double perplexity; /* exp(mean_nll) */
} moe_perplexity;

/* Perplexity of a text in non-overlapping windows of the session's context. `tokens` are encoded
 * with MOE_ENCODE_NO_SPECIAL; each window begins with the model's prefix, see section 5. Without a
 * prefix a window's first token is not scored. The session must be empty (position 0) and is empty
 * afterwards. MOE_ERR_NON_FINITE as moe_session_eval; MOE_ERR_UNSUPPORTED for an encoder-decoder
 * (use moe_session_score). progress: after each window, or NULL. */
MOE_API moe_status moe_session_perplexity(moe_session* session, const int32_t* tokens,
                                          size_t n_tokens, moe_progress_fn progress, void* user,
                                          moe_perplexity* out, moe_error* error);

/* ------------------------------------------------------------------------------------------------
 * 7. ROUTING AND EXPERTS */

/* Overrides the router of every MoE layer in this session. Of moe_router it takes a kind, "topk" or
 * "threshold", with its number and min_k and max_k; gamma and min_capacity; and resident. Without a
 * kind the selection stays, and the weights' rule always does. Other fields may only repeat what
 * moe_model_get_router says (MOE_ERR_ARGUMENT). MOE_ERR_UNSUPPORTED to select without a softmax
 * over all experts, MOE_ERR_RANGE for numbers; then nothing changes. NULL: as in the file.
 *
 * resident, in 0..1, is for a memory cap: an expert that is not in memory and would evict another
 * is skipped if no token of the pass gives it a larger probability. Each token retains its best
 * expert. If the model's rule normalises weights, it does so over the remaining experts. Results
 * then depend on the contents of the cache, and two runs can differ. MOE_ERR_UNSUPPORTED on a GPU.
 *
 * gamma is the capacity factor: it limits the tokens per expert, counted over one call, so a call
 * must fit in one chunk. A default chunk (params.chunk 0) grows to the context, at most 4096, with
 * the memory that a pass then needs (MOE_ERR_BUDGET if a cap leaves too little); an explicit chunk
 * does not grow, and a longer call gets MOE_ERR_TOO_LONG. */
MOE_API moe_status moe_session_set_router(moe_session* session, const moe_router* router,
                                          moe_error* error);

/* Starts counting from zero, or stops (on = false); off by default. Cheap, except that a GPU then
 * waits after each layer. Counts only tokens that became part of the text, not those of cancelled
 * or failed passes. */
MOE_API moe_status moe_session_count_routing(moe_session* session, bool on, moe_error* error);

/* The routing counts of one MoE layer. */
typedef struct moe_routing_stats {
  uint32_t struct_size;
  int32_t n_experts;      /* of the layer */
  uint64_t n_tokens;      /* (sub-)tokens routed */
  uint64_t n_dropped;     /* (token, expert) pairs refused by a capacity */
  uint64_t n_activations; /* inner activations computed, as in moe_activation_stats */
  uint64_t n_positive;    /* of these, above zero */
  /* (n_experts); owned by the session, which updates it; valid until the session is freed */
  const uint64_t* tokens_per_expert;
  /* (n_experts + 1): (sub-)tokens routed to i experts */
  const uint64_t* experts_per_token;
  uint64_t n_skipped;         /* pairs skipped because of `resident` */
  double skipped_probability; /* their total probability; at most n_tokens */
} moe_routing_stats;

/* Counts of moe_session_count_routing for layer `layer`, from 0. MOE_ERR_UNSUPPORTED for a dense
 * layer; MOE_ERR_STATE if counting is off; MOE_ERR_RANGE, MOE_ERR_ARGUMENT. */
MOE_API moe_status moe_session_get_routing(const moe_session* session, int32_t layer,
                                           moe_routing_stats* out, moe_error* error);

/* Inner activations of one layer, dense or of experts: act(gate) of a gated network, otherwise
 * act(up). One per hidden unit and token, or, with experts, per hidden unit and (token, expert)
 * pair; shared experts are not counted. */
typedef struct moe_activation_stats {
  uint32_t struct_size;
  uint32_t reserved;      /* 0 */
  uint64_t n_activations; /* 0 for a layer without an FFN */
  uint64_t n_positive;    /* of these, above zero */
} moe_activation_stats;

/* Counts of moe_session_count_routing for layer `layer`, from 0. MOE_ERR_STATE if counting is off;
 * MOE_ERR_RANGE, MOE_ERR_ARGUMENT. */
MOE_API moe_status moe_session_get_activations(const moe_session* session, int32_t layer,
                                               moe_activation_stats* out, moe_error* error);

/* The routing of one MoE layer for the tokens of one pass. */
typedef struct moe_routing_choices {
  uint32_t struct_size;
  int32_t layer;    /* from 0 */
  int32_t position; /* of the first token in the text; the others follow */
  int32_t n_tokens; /* MH-MoE: sub-tokens, one per sub-head of each token */
  int32_t n_slots;  /* maximum experts per token */
  int32_t* counts;  /* (n_tokens): experts per token, 1..n_slots */
  int32_t* experts; /* (n_tokens, n_slots), best first; undefined beyond the count */
  float* weights;   /* (n_tokens, n_slots) of the experts' outputs */
  /* The router's input, (n_tokens, d): hidden states after the layer's norm; MH-MoE: sub-tokens. */
  const float* hidden;
  /* (n_tokens, n_experts): cosines, or logits before softmax or sigmoid; NULL for a hash router */
  const float* scores;
  int32_t d;         /* width of `hidden` */
  int32_t n_experts; /* of the layer */
} moe_routing_choices;

/* Called before the choices are used, and may change them: distinct expert ids of the layer for
 * each token, with finite weights; otherwise MOE_ERR_RANGE, MOE_ERR_ARGUMENT or MOE_ERR_NON_FINITE.
 * A capacity applies afterwards, by the new weights. Return false to end the call with
 * MOE_ERR_CANCELLED. Runs on the caller's thread, also for passes that later fail. Must not call
 * the session, except for moe_session_cancel, nor wait for another thread that uses the model:
 * under a memory cap that thread may wait for this pass. It can evaluate other sessions if memory
 * is left for a second pass; otherwise their calls return MOE_ERR_STATE. */
typedef bool (*moe_routing_fn)(void* user, moe_routing_choices* choices);

/* Has `callback` called for every MoE layer of later passes; NULL: no longer. Any thread.
 * MOE_ERR_UNSUPPORTED on a GPU. */
MOE_API moe_status moe_session_watch_routing(moe_session* session, moe_routing_fn callback,
                                             void* user, moe_error* error);

/* Expert uses and cache hits. An operation is one MoE layer on one chunk of tokens; it uses an
 * expert once, however many tokens selected it. All zero if every expert is resident. */
typedef struct moe_expert_stats {
  uint64_t n_uses;     /* of experts by operations */
  uint64_t n_hits;     /* experts found in memory */
  uint64_t read_bytes; /* for the misses */
  double wait_seconds; /* time that calls waited for experts to be read */
} moe_expert_stats;

/* Memory and expert statistics of a model under a cap. The byte counts cover the model and all of
 * its sessions; zero without a cap. */
typedef struct moe_memory_stats {
  uint32_t struct_size;
  uint32_t reserved;
  moe_expert_stats session; /* this session; moe_sessions_eval counts for its first session */
  moe_expert_stats model;   /* all sessions since the model was opened */
  uint64_t cap_bytes;
  uint64_t counted_bytes; /* current total that counts against the cap */
  uint64_t peak_bytes;    /* maximum of counted_bytes */
  uint64_t arena_bytes;   /* capacity of the expert cache */
  uint64_t expert_bytes;  /* experts in it */
  uint64_t filled_bytes;  /* read to fill it, not for a miss: see moe_model_params.lazy_experts */
} moe_memory_stats;

/* Memory and expert statistics. Do not call it during another call of the session.
 * MOE_ERR_ARGUMENT. */
MOE_API moe_status moe_session_get_memory_stats(const moe_session* session, moe_memory_stats* out,
                                                moe_error* error);

/* ------------------------------------------------------------------------------------------------
 * 8. SAMPLING AND GENERATION */

/* Makes a token more or less probable. */
typedef struct moe_logit_bias {
  int32_t token; /* in 0..vocab_size - 1 */
  float bias;    /* added to the logit, at most 1e30; -INFINITY bans the token */
} moe_logit_bias;

/* How a token is chosen. Applied in this order: bias, repetition penalty, temperature, top-k,
 * top-p, min-p. */
typedef struct moe_sampling {
  uint32_t struct_size;
  float temperature; /* 0: greedy, ties to the lower id; at most 1e6 */
  int32_t top_k;     /* 0: off */
  float top_p;       /* 0 or 1: off; in (0, 1] */
  float min_p;       /* 0: off; in [0, 1): minimum probability relative to the best token's */
  float repetition_penalty;   /* 0 or 1: off; in 0.01..100 */
  int32_t repetition_window;  /* number of last tokens that are penalised; 0: 64 */
  int32_t n_bias;             /* entries of `bias` */
  uint64_t seed;              /* the same seed gives the same text */
  const moe_logit_bias* bias; /* n_bias of them, or NULL */
} moe_sampling;

/* How to sample a conversation where the user says nothing: what the checkpoint's authors say
 * (generation_config.json, or a GGUF file's general.sampling), stored in the model file; *in_file
 * is then true. What they leave out is off, and the temperature 1. If they say nothing, or only how
 * to penalise repetitions, it is temperature 0.8, top_p 0.95 and min_p 0.05, and *in_file false. A
 * temperature of 0 means that they do not sample. `moe chat` uses these settings; the functions of
 * this library use what they are given. Writes every field: the seed is 0 and there is no bias.
 * in_file may be NULL. Any thread. */
MOE_API moe_status moe_model_get_sampling(const moe_model* model, moe_sampling* out, bool* in_file,
                                          moe_error* error);

/* A token with its probability. */
typedef struct moe_token_logprob {
  int32_t token; /* -1: none */
  float logprob; /* natural logarithm, of the model's distribution before sampling filters */
} moe_token_logprob;

/* Samples from the logits of the last evaluated token without advancing the session. top: NULL or
 * room for n_top (at most 64) candidates, best first, token -1 beyond the vocabulary. The draw
 * number is the session's position: sampling twice at one position gives the same token.
 * MOE_ERR_STATE in an empty session, MOE_ERR_RANGE for a field of `sampling`, MOE_ERR_NON_FINITE.
 */
MOE_API moe_status moe_session_sample(moe_session* session, const moe_sampling* sampling,
                                      moe_token_logprob* out, moe_token_logprob* top, size_t n_top,
                                      moe_error* error);

enum {
  MOE_PIECE_THINKING = 1, /* in a chat: not part of the answer */
  /* In a chat with tools: `text` is a whole call of one, {"id": "...", "name": "...", "arguments":
   * {...}} in this order, which is valid JSON, and not part of the answer. */
  MOE_PIECE_TOOL_CALL = 2
};

/* A piece of generated text. With a tokenizer `text` holds whole UTF-8 characters; it may be empty
 * while a character is incomplete. Valid during the callback. */
typedef struct moe_piece {
  uint32_t struct_size;
  int32_t token;                /* -1: previously withheld text without a new token */
  float logprob;                /* of the token, as in moe_token_logprob */
  uint32_t flags;               /* MOE_PIECE_* */
  const char* text;             /* not terminated */
  size_t n_bytes;               /* of `text` */
  const moe_token_logprob* top; /* n_top of them, best first */
  size_t n_top;                 /* as in moe_generate_params */
} moe_piece;

/* Receives each piece as it is generated. Return false to stop (MOE_FINISH_CALLBACK). May only call
 * moe_session_cancel on the session. */
typedef bool (*moe_piece_fn)(void* user, const moe_piece* piece);

/* Receives the logits of the next token, n_logits (the vocabulary size) of them, and may change
 * them; -INFINITY bans a token. tokens: the text so far. Sampling and the piece's logprobs use the
 * changed values; the session's own logits are unchanged. Return false to stop
 * (MOE_FINISH_CALLBACK). Runs on the caller's thread, once per token. May only call
 * moe_session_cancel on the session; calls that would change it get MOE_ERR_STATE. NaN or +INFINITY
 * gives MOE_ERR_NON_FINITE, banning every token MOE_ERR_RANGE; in both cases the session does not
 * advance. */
typedef bool (*moe_logits_fn)(void* user, const int32_t* tokens, size_t n_tokens, float* logits,
                              size_t n_logits);

/* The language of a grammar's text. */
typedef enum moe_grammar_kind {
  MOE_GRAMMAR_JSON_SCHEMA =
      1,                /* JSON Schema 2020-12 or draft 7; docs/structured.md says how much */
  MOE_GRAMMAR_GBNF = 2, /* GBNF, as llama.cpp's grammar files; begins with the rule "root" */
  MOE_GRAMMAR_REGEX = 3 /* a regular expression for the whole text */
} moe_grammar_kind;

/* A set of texts, such as those that a JSON schema describes. */
typedef struct moe_grammar moe_grammar;

/* Compiles a grammar for the texts of a model. `text` need not be terminated; at most 16 MB.
 * MOE_ERR_FORMAT names the byte, or the place in the schema as a JSON pointer, that is wrong,
 * MOE_ERR_UNSUPPORTED the keyword that is not supported, or a byte for which the tokenizer has no
 * token; MOE_ERR_RANGE if no text satisfies the grammar, MOE_ERR_TOO_LONG if it takes too much
 * memory (48 MB) or time, MOE_ERR_NOT_FOUND for a reference to nothing. The model's first grammar
 * also reads its vocabulary (about 30 bytes a token). The result is immutable: any number of calls
 * on any threads may use it at once. Any thread. In a library built with MOE_GRAMMAR=OFF:
 * MOE_ERR_UNSUPPORTED. */
MOE_API moe_status moe_grammar_create(moe_model* model, moe_grammar_kind kind, const char* text,
                                      size_t n_bytes, moe_grammar** out, moe_error* error);
/* Gives up the handle; NULL is allowed. Generations that use the grammar keep it. */
MOE_API void moe_grammar_free(moe_grammar* grammar);

/* Why a generation ended. */
typedef enum moe_finish {
  MOE_FINISH_LENGTH = 1,  /* max_tokens were generated */
  MOE_FINISH_EOS = 2,     /* an end-of-text token, not reported; or a grammar allows no more text */
  MOE_FINISH_STOP = 3,    /* a stop string, no part of which is reported */
  MOE_FINISH_CONTEXT = 4, /* the context is full */
  MOE_FINISH_CALLBACK = 5 /* a callback stopped the call */
} moe_finish;

/* How text is generated. */
typedef struct moe_generate_params {
  uint32_t struct_size;
  int32_t max_tokens;           /* 0: until the context is full */
  const moe_sampling* sampling; /* NULL: greedy */
  /* At most 64 of at most 4096 bytes each; requires a tokenizer. In a chat none matches across a
   * special token, nor in the header of a channel. */
  const char* const* stop;
  int32_t n_stop;     /* strings in `stop` */
  int32_t ignore_eos; /* 1: continue after end-of-text tokens */
  int32_t n_top;      /* candidates reported per piece; at most 64 */
  /* 0..16. Drafts up to this many tokens at once, as earlier text continued after the same last
   * tokens (prompt lookup decoding), or as the model's own layer for that guesses
   * (moe_model_info.n_predictions), and checks them in one pass, which costs less than a pass for
   * each. The result is the same; text that repeats itself or the prompt is generated faster.
   * Routing and expert statistics include rejected ones. Not with `logits`, nor with an
   * expert capacity or `resident`, with which results depend on how a text is split. 0: no drafts
   */
  int32_t max_draft;
  moe_piece_fn piece;   /* NULL: none */
  void* piece_user;     /* its first argument */
  moe_logits_fn logits; /* NULL: none */
  void* logits_user;    /* its first argument */
  /* The text follows this grammar, made for the session's model (otherwise MOE_ERR_ARGUMENT); NULL:
   * any text. MOE_FINISH_EOS then says that the text is complete; after any other end it may not
   * be. In a chat the grammar begins after the model's thinking, which is free; with tools it is
   * MOE_ERR_ARGUMENT, since a call would be no text of the grammar. Together with
   * `logits`, the grammar has the last word; MOE_ERR_RANGE if `logits` or a bias bans every token
   * that may follow. With max_draft, text that has no alternative is drafted. */
  moe_grammar* grammar;
} moe_generate_params;

/* The outcome of a generation. */
typedef struct moe_generate_result {
  uint32_t struct_size;
  moe_finish finish;       /* why it ended */
  int32_t n_prompt;        /* tokens of the prompt */
  int32_t n_generated;     /* tokens generated */
  double prompt_seconds;   /* time for the prompt */
  double generate_seconds; /* time after the prompt */
  int32_t n_drafted;       /* tokens drafted */
  int32_t n_accepted;      /* of these, generated */
} moe_generate_result;

/* Appends the prompt's tokens, then generates. Without a prompt it continues from the session's
 * position (which must not be 0). A character that the last token leaves incomplete is reported as
 * U+FFFD; a call that continues reports the whole character. After MOE_ERR_CANCELLED the text
 * reported so far is valid. MOE_ERR_RANGE and MOE_ERR_ARGUMENT for parameters, MOE_ERR_TOO_LONG for
 * a prompt that the context cannot hold, MOE_ERR_STATE, MOE_ERR_NON_FINITE:
 *     static bool print(void* user, const moe_piece* piece) {
 *       return fwrite(piece->text, 1, piece->n_bytes, user) == piece->n_bytes;
 *     }
 *     ...
 *     moe_generate_params params = MOE_INIT(moe_generate_params);
 *     params.max_tokens = 100;
 *     params.piece = print;
 *     params.piece_user = stdout;
 *     moe_generate_result result = MOE_INIT(moe_generate_result);
 *     status = moe_session_generate(session, tokens, n, &params, &result, &error); */
MOE_API moe_status moe_session_generate(moe_session* session, const int32_t* prompt,
                                        size_t n_prompt, const moe_generate_params* params,
                                        moe_generate_result* out, moe_error* error);

/* A generation whose tokens the caller evaluates, so that one call evaluates those of several
 * sessions (moe_sessions_eval). Its pieces, stop strings and end are those of moe_session_generate,
 * or of moe_chat_reply. Used by one thread at a time, like its session, which it keeps. */
typedef struct moe_generation moe_generation;

/* Says whether the text after the tokens that are evaluated next is going to be drafted
 * (params.max_draft): a layer of the model that guesses then sees them as they are evaluated, which
 * takes the time of one more layer, and its first guesses are as good as after
 * moe_session_generate. No result depends on it. Off at first, and after each generation that has
 * ended or failed; one that is freed before its end leaves it as it is. */
MOE_API moe_status moe_session_expect_drafts(moe_session* session, bool on, moe_error* error);

/* Begins after what the session holds, which must not be empty (MOE_ERR_STATE). `params` is copied
 * with all it points to. Errors of the parameters as moe_session_generate. */
MOE_API moe_status moe_generation_create(moe_session* session, const moe_generate_params* params,
                                         moe_generation** out, moe_error* error);
/* Samples one token, reports it and stores it in *token: evaluate it before the next call, in
 * whatever call:
 *     while (moe_generation_next(generation, &token, &finish, &error) == MOE_OK && token >= 0) {
 *       if (moe_session_eval(session, &token, 1, MOE_ROWS_NONE, NULL, &error) != MOE_OK) break;
 *     }
 * -1: the generation has ended, *finish says why, and all text has been reported; the last token
 * need not have been evaluated. MOE_ERR_STATE after the end, or if the session does not end
 * with the last token. After other errors, those of moe_session_generate, it can only be freed. */
MOE_API moe_status moe_generation_next(moe_generation* generation, int32_t* token,
                                       moe_finish* finish, moe_error* error);
/* For a session that is stepped alone: evaluates the token that was given last, in one pass with up
 * to params.max_draft drafted tokens after it, and goes on as if moe_generation_next had given each
 * that is right, to the same bits. *token is the one after them. MOE_ERR_STATE if no token has been
 * given, or if it was evaluated; otherwise as moe_generation_next. */
MOE_API moe_status moe_generation_advance(moe_generation* generation, int32_t* token,
                                          moe_finish* finish, moe_error* error);
/* After MOE_FINISH_STOP: the index in params.stop of the stop string that was found, the longest of
 * several that end at the same byte. Otherwise, and for NULL: -1. */
MOE_API int32_t moe_generation_stop(const moe_generation* generation);
/* Frees it; NULL is allowed. The session keeps the text. */
MOE_API void moe_generation_free(moe_generation* generation);

/* ------------------------------------------------------------------------------------------------
 * 9. CHAT
 * A conversation in a session: messages, the template that renders them as text, replies.
 *
 * Templates are Jinja: the subset that checkpoints use, with the results of jinja2. Steps, text and
 * depth are limited for any template and conversation. Messages, tools and variables never produce
 * special tokens; only the template can.
 *
 * In a library built with MOE_CHAT=OFF every call that returns a status gives MOE_ERR_UNSUPPORTED.
 */

typedef struct moe_chat moe_chat;

/* The model file's Jinja template; NULL: none. */
MOE_API const char* moe_model_chat_template(const moe_model* model);

/* The names of the built-in templates: "chatml", "llama3", "mistral", and "plain", which
 * concatenates the messages for models that continue text. NULL behind the last. Static; any
 * thread. */
MOE_API const char* moe_chat_template_name(size_t index);

/* If a model thinks before it answers. */
typedef enum moe_thinking {
  MOE_THINKING_DEFAULT = 0, /* the template's own default */
  MOE_THINKING_ON = 1,
  MOE_THINKING_OFF = 2
} moe_thinking;

/* The options of a conversation. */
typedef struct moe_chat_params {
  uint32_t struct_size;
  /* On and off set the template's variables enable_thinking and thinking; MOE_ERR_UNSUPPORTED if it
   * uses neither. */
  moe_thinking thinking;
  /* A name from moe_chat_template_name, or Jinja text. NULL: the model's template;
   * MOE_ERR_NOT_FOUND if it has none. */
  const char* chat_template;
  const char* system; /* first message, with the role "system"; NULL: none */
  /* "NAME=VALUE" for the template. true, false, none and integers become values of that type, any
   * other VALUE is text. "plain" accepts user_prefix and reply_prefix. */
  const char* const* variables;
  int32_t n_variables; /* entries of `variables` */
  int32_t reserved;    /* zero */
  /* "YYYY-MM-DD" for templates that use strftime_now. NULL: today, UTC. "": no date. */
  const char* date;
} moe_chat_params;

/* Begins a conversation. The session need not be empty, and several chats may share it: each reply
 * reuses the session's text up to the first difference. MOE_ERR_UNSUPPORTED if the session's model
 * has no tokenizer. MOE_ERR_NOT_FOUND without a template, MOE_ERR_FORMAT or MOE_ERR_UNSUPPORTED for
 * one that is not usable, MOE_ERR_ARGUMENT for a field of the parameters. */
MOE_API moe_status moe_chat_create(moe_session* session, const moe_chat_params* params,
                                   moe_chat** out, moe_error* error);
/* Gives up the handle; NULL is allowed. The session keeps the text. */
MOE_API void moe_chat_free(moe_chat* chat);
/* Continues in another session of the same model (otherwise MOE_ERR_ARGUMENT), for example one with
 * a larger context. The next reply evaluates whatever the new session does not contain. NULL: the
 * chat keeps its messages and releases its session, for example to free that before creating a
 * larger one under a memory cap; until there is another, moe_chat_reply and moe_chat_remove_oldest
 * return MOE_ERR_STATE. */
MOE_API moe_status moe_chat_set_session(moe_chat* chat, moe_session* session, moe_error* error);

/* Appends a message. role: "user", "assistant" or any role that the template supports. `content`
 * need not be terminated. */
MOE_API moe_status moe_chat_add(moe_chat* chat, const char* role, const char* content,
                                size_t n_bytes, moe_error* error);
/* Appends a message in JSON, as OpenAI's chat completions have them, for calls of tools and their
 * results:
 *     {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
 *      "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}}]}
 *     {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"}
 * "content" is a text or null, "reasoning_content" the thinking of a reply. The template gets all
 * other members as they are, numbers that 64 bits do not hold as fractions, and the arguments of
 * calls as it expects them: a mapping, or their text. A result without a "name" gets that of the
 * tool, by the id of its call (among the latest 1024). MOE_ERR_ARGUMENT for what is no such message
 * in UTF-8, nested at most 64 levels, MOE_ERR_UNSUPPORTED for calls if the template does not write
 * those of earlier replies. */
MOE_API moe_status moe_chat_add_message(moe_chat* chat, const char* json, size_t n_bytes,
                                        moe_error* error);
/* Gives the model tools that it may call, a JSON list as in OpenAI's chat completions:
 *     [{"type": "function", "function": {"name": "weather", "description": "...",
 *       "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
 * NULL or an empty list: none. The template gets them as they are, and calls in later replies are
 * found and reported as pieces with MOE_PIECE_TOOL_CALL, in the order of the text around them. What
 * is no whole call with valid arguments, or takes more than 1 MiB, is text.
 *
 * With "strict": true in a function, every call is held to a form while it is generated: it names
 * one of the tools, and the arguments of such a tool satisfy its parameters (docs/structured.md);
 * text outside of calls is free. Otherwise calls are as the model writes them, and whether they
 * suit the tools is for the caller to check. The template does not see "strict".
 *
 * The list is copied. MOE_ERR_ARGUMENT for what is no such list, MOE_ERR_UNSUPPORTED if the
 * template does not use tools, if moe_chat_tool_format is NULL, or for what calls cannot be held
 * to; other errors of a schema as moe_grammar_create. */
MOE_API moe_status moe_chat_set_tools(moe_chat* chat, const char* json, size_t n_bytes,
                                      moe_error* error);
/* Whether a reply must call a tool. */
typedef enum moe_tool_choice {
  MOE_TOOLS_AUTO = 0,     /* the model decides */
  MOE_TOOLS_REQUIRED = 1, /* the reply is calls and no text, behind the model's thinking */
  MOE_TOOLS_ONE = 2       /* the same, and one call alone */
} moe_tool_choice;

/* Chooses for the replies from now on, until moe_chat_set_tools gets an empty list. name: the
 * tool that is called, if one must be; NULL: any. Arguments then satisfy the
 * tools' parameters, except for a tool with "strict": false, whose arguments are any object.
 * MOE_ERR_STATE without tools, MOE_ERR_ARGUMENT if none has that name, other errors as
 * moe_chat_set_tools; then nothing changes. */
MOE_API moe_status moe_chat_set_tool_choice(moe_chat* chat, moe_tool_choice choice,
                                            const char* name, moe_error* error);
/* The format in which the chat's template asks for calls of tools: "hermes" (also Qwen), "llama3",
 * "mistral", "deepseek", "gpt-oss" ... NULL: none that is known, and for NULL. Static. */
MOE_API const char* moe_chat_tool_format(const moe_chat* chat);
/* Removes all but the first n_messages messages. The system text does not count and remains. */
MOE_API moe_status moe_chat_truncate(moe_chat* chat, size_t n_messages, moe_error* error);
/* Makes room: removes the oldest turns, as few as possible, until the conversation with the
 * beginning of a reply has at most max_tokens tokens. A turn is a message with the role "user" and
 * those up to the next one. The system text, messages before the first turn and the last turn
 * remain. The next reply evaluates what is left, as the template renders it. *n_removed (may be
 * NULL): messages. MOE_ERR_TOO_LONG if what must remain has more tokens, MOE_ERR_TEXT if the
 * template rejects what would remain, MOE_ERR_CANCELLED after moe_session_cancel; then nothing
 * changes. */
MOE_API moe_status moe_chat_remove_oldest(moe_chat* chat, size_t max_tokens, size_t* n_removed,
                                          moe_error* error);
/* Replaces the system text; NULL: none. */
MOE_API moe_status moe_chat_set_system(moe_chat* chat, const char* system, moe_error* error);

/* One message. Its texts are owned by the chat and valid until its messages change. */
typedef struct moe_chat_message {
  uint32_t struct_size;
  uint32_t reserved;       /* 0 */
  const char* role;        /* terminated */
  const char* content;     /* not terminated */
  size_t n_bytes;          /* of `content` */
  const char* thinking;    /* of a reply; "": none */
  size_t n_thinking_bytes; /* of `thinking` */
  /* A JSON object of the other members, as moe_chat_add_message takes them: tool_calls of a reply,
   * tool_call_id of a result ... Terminated; "": none. */
  const char* members;
} moe_chat_message;

/* The number of messages, without the system text; 0 for NULL. */
MOE_API size_t moe_chat_message_count(const moe_chat* chat);
/* Message `index`, from 0, without the system text. MOE_ERR_RANGE if there is none. */
MOE_API moe_status moe_chat_get_message(const moe_chat* chat, size_t index, moe_chat_message* out,
                                        moe_error* error);

/* The conversation as the model reads it, with special tokens spelled out; begin_reply: including
 * the start of the next reply. MOE_ERR_TEXT if the template rejects the conversation. */
MOE_API moe_status moe_chat_render(const moe_chat* chat, bool begin_reply, char* text,
                                   size_t capacity, size_t* n_bytes, moe_error* error);
/* The same as token ids. */
MOE_API moe_status moe_chat_tokens(const moe_chat* chat, bool begin_reply, int32_t* tokens,
                                   size_t capacity, size_t* n_tokens, moe_error* error);

/* The outcome of a reply: tokens and time. */
typedef struct moe_chat_result {
  uint32_t struct_size;
  moe_finish finish;       /* why it ended */
  int32_t n_prompt;        /* tokens of the conversation before the reply */
  int32_t n_reused;        /* of these, already in the session and not evaluated again */
  int32_t n_generated;     /* tokens of the reply */
  int32_t n_thinking;      /* of these, thinking including its tags */
  double prompt_seconds;   /* time for the prompt */
  double generate_seconds; /* time after the prompt */
  int32_t n_drafted;       /* as in moe_generate_result */
  int32_t n_accepted;      /* as in moe_generate_result */
  int32_t n_tool_calls;    /* in a chat with tools: calls in the reply */
  int32_t reserved;        /* 0 */
} moe_chat_result;

/* Generates a reply to the messages so far and appends it with the role "assistant". It ends at an
 * end-of-text token of the model or tokenizer (MOE_FINISH_EOS), or at a built-in template's end of
 * turn.
 *
 * Thinking is the leading part of a reply between <think> and </think>, between other tags that the
 * template names, or in channels other than "final". It is reported in pieces with
 * MOE_PIECE_THINKING, without the tags. The template decides what later turns see of it.
 *
 * MOE_ERR_TOO_LONG if the conversation fills the context. MOE_ERR_CANCELLED after
 * moe_session_cancel, also while the template runs. After any failure the messages are unchanged; a
 * failure before evaluation leaves the session as it was, after a later one it holds a prefix of
 * the conversation and of the unfinished reply. The next reply reuses what matches. A reply that
 * was stopped (by length, context, stop string or callback) is appended as far as it was generated.
 */
MOE_API moe_status moe_chat_reply(moe_chat* chat, const moe_generate_params* params,
                                  moe_chat_result* out, moe_error* error);

/* Begins a reply whose tokens the caller evaluates (section 8). The chat's session must hold
 * exactly what moe_chat_tokens gives with begin_reply: MOE_ERR_STATE. The reply is not appended to
 * the messages; moe_chat_add_message can. The chat may be freed or changed before the generation.
 * Other errors as moe_chat_reply. */
MOE_API moe_status moe_chat_begin_reply(moe_chat* chat, const moe_generate_params* params,
                                        moe_generation** out, moe_error* error);

/* ------------------------------------------------------------------------------------------------
 * 10. ONE MOE LAYER ON ITS OWN
 * The library as a kernel for other runtimes: takes weights as float matrices in memory, packs them
 * in the requested format, and maps (n, d_model) to (n, d_model). No residual, no norm. In a
 * library built with MOE_LAYER=OFF both calls return MOE_ERR_UNSUPPORTED. */

typedef struct moe_layer moe_layer;

/* One expert. Matrices are row-major (out, in); d_in is d_model / n_subheads. A plain FFN has no
 * gate. */
typedef struct moe_expert_weights {
  uint32_t struct_size;   /* of the first: the distance of the experts in an array */
  const float* gate;      /* (d_ff, d_in) or NULL */
  const float* up;        /* (d_ff, d_in) */
  const float* down;      /* (d_in, d_ff) */
  const float* gate_bias; /* (d_ff) or NULL */
  const float* up_bias;   /* (d_ff) or NULL */
  const float* down_bias; /* (d_in) or NULL */
} moe_expert_weights;

/* The shape and the weights of a layer. Sizes and counts are in 1..65536, or 0 where a default is
 * given. */
typedef struct moe_layer_params {
  uint32_t struct_size;
  int32_t d_model;          /* width of a row */
  int32_t d_ff;             /* inner width of an expert */
  int32_t n_experts;        /* routed, without the shared one */
  int32_t n_subheads;       /* 0 or 1: no sub-tokens; more: MH-MoE */
  int32_t max_rows;         /* rows computed at once; longer calls take several passes; 0: 256 */
  const char* activation;   /* "relu", "gelu", "gelu_tanh", "silu", "relu2", "tanh"; NULL: "silu" */
  const moe_router* router; /* any kind but "hash", without a capacity; NULL: "topk" with k 1 */
  /* format of experts, head and merge: a name from moe_weight_format_name; NULL: "f32" */
  const char* weights;
  /* "f32", "a8", "a8_block", "a8_group" (formats with scales per group); NULL: the format's
     default */
  const char* activations;
  const moe_expert_weights* experts; /* n_experts of them */
  /* (n_experts, d_in); cosine: the expert embeddings (n_experts, d_e) */
  const float* router_weight;
  const float* router_bias;         /* (n_experts) or NULL; sigmoid: the selection bias */
  const float* router_proj;         /* cosine: (d_e, d_in) */
  int32_t d_e;                      /* cosine: width of the embeddings */
  int32_t shared_d_ff;              /* 0: no shared expert */
  const moe_expert_weights* shared; /* on d_model, added to the experts' sum */
  const float* shared_gate; /* (d_model) or NULL: scales the shared expert by sigmoid(x . g) */
  const float* head;        /* MH-MoE: (d_model, d_model), or NULL: no head layer */
  const float* head_bias;   /* (d_model) or NULL */
  const float* merge;       /* the same, after the experts */
  const float* merge_bias;  /* (d_model) or NULL */
} moe_layer_params;

/* Packs the weights, which are copied, and makes the layer. MOE_ERR_ARGUMENT for a missing array or
 * an unknown name, MOE_ERR_RANGE, MOE_ERR_SHAPE, MOE_ERR_NON_FINITE for weights, MOE_ERR_MEMORY
 * (examples/moe_layer.c). */
MOE_API moe_status moe_layer_create(moe_env* env, const moe_layer_params* params, moe_layer** out,
                                    moe_error* error);
/* Frees the layer; NULL is allowed. */
MOE_API void moe_layer_free(moe_layer* layer);
/* Computes the layer for n rows. x, y: (n, d_model), may be the same array. Bit-identical for any
 * thread count and any split of the rows. MOE_ERR_NON_FINITE for NaN or infinity in x, before
 * anything is written. An error found while computing may leave earlier passes of max_rows rows
 * written. */
MOE_API moe_status moe_layer_forward(moe_layer* layer, const float* x, size_t n, float* y,
                                     moe_error* error);

/* ------------------------------------------------------------------------------------------------
 * 11. CONVERTER
 * In libmoe_convert, linked in addition to libmoe. Files are replaced as in section 12: the final
 * name never holds a part of a file. */

/* Receives a JSON object. */
typedef void (*moe_report_fn)(void* user, const char* json);

/* The options of a conversion. */
typedef struct moe_convert_params {
  uint32_t struct_size;
  int32_t compress; /* 1: zstd for segments where it saves at least 5 % */
  /* NULL or "auto"; "source": every weight, also of embedding and routers, in the float format that
   * holds the checkpoint's exactly; "mixed4": int4_k, and int6_k in attention, embedding, head and
   * for `down` in about half of the layers; or a name from moe_weight_format_name */
  const char* weights;
  /* "PATTERN=FORMAT" on tensor names; * matches anything; the last match wins */
  const char* const* overrides;
  int32_t n_overrides; /* entries of `overrides` */
  int32_t verify;      /* 1: read the result back and compare every weight with the checkpoint */
  /* Counts bytes of the checkpoint, tokens while the source model reads `calibration`
   * ("calibrate"), or bytes of `statistics` ("statistics"). */
  moe_progress_fn progress;
  void* progress_user;  /* its first argument */
  moe_report_fn report; /* one object per stored matrix, then one for the whole conversion */
  void* report_user;    /* its first argument */
  /* Keys of config.json or of a GGUF file to ignore: those that the importer does not know and that
   * do not change what the model computes. In an object of config.json "OBJECT.KEY"; each may be
   * several with commas between. */
  const char* const* ignored_keys;
  int32_t n_ignored_keys; /* entries of `ignored_keys` */
  int32_t n_threads; /* 0: one per usable CPU; each takes 3 MB or more. The file is the same for
                        any number */
  /* A text of n_calibration bytes to run through the source model, or NULL. Each matrix's input
   * second moments (an expert's, over the tokens routed to it) determine how later weights
   * compensate for the rounding error of earlier ones. Runs on all threads and needs a temporary
   * float copy of the model next to the destination (an unnamed file). MOE_ERR_ARGUMENT, before
   * anything is written, if the text has no tokens, the checkpoint has no tokenizer, or nothing is
   * rounded and split_ffn is 0. */
  const char* calibration;
  size_t n_calibration; /* bytes of it */
  /* Splits every FFN of a dense model into this many experts; must divide the FFN's width; 0: no
   * split. A router is fitted to the FFN's inputs on `calibration`. The file's threshold is 1,
   * which selects all experts and equals the dense model; moe_session_set_router selects fewer with
   * "threshold:T" or "topk:K". MOE_ERR_ARGUMENT without `calibration`. */
  int32_t split_ffn;
  int32_t split_by_clusters; /* 1: group neurons with similar weights; 0: neighbouring neurons */
  /* Instead of `calibration`: a file that save_statistics named when the same checkpoint was
   * converted. The model is the one that its text would give, in any format, without reading the
   * text. The file is checked before anything is written; MOE_ERR_ARGUMENT if it is of another
   * checkpoint, or with split_ffn. Another one is told by its configuration, the shapes of its
   * tensors, and one value in 1024 of each: the first 256 of every 2^18, and the last 256. An edit
   * of other values alone goes unnoticed. */
  const char* statistics;
  /* With `calibration` and without split_ffn: a file to write its statistics to, or NULL. An input
   * of n channels, which matrices may share, takes about 2 n min(n, 2048) bytes. The file
   * gets its name just after the destination does: if that alone fails, the model is complete, and
   * an older file of statistics is unchanged. A file with other content is not replaced:
   * MOE_ERR_ARGUMENT. */
  const char* save_statistics;
  /* 1: accept a file that ends in matrices of zeros. 0: MOE_ERR_CORRUPT, before anything is
   * written, because a download that stopped after its space was reserved leaves such a file. */
  int32_t allow_zeros;
  /* The order of I2_S tensors in a GGUF file. 1: blocks of 64 weights, as bitnet.cpp writes them on
   * ARM since November 2025; 0: of 128, as it writes them elsewhere. The file does not say which.
   */
  int32_t i2_s_arm;
  /* With weights NULL or "auto", formats are chosen so that the file takes at most this many bytes
   * with the least expected damage; 0: no such limit. Matrices of which `overrides` say a format
   * keep that. MOE_ERR_ARGUMENT, naming the smallest possible size, before anything is written.
   * With compress the file may be smaller still. The report has "expected_error" and "sensitivity"
   * of each matrix chosen, and "size". */
  uint64_t most_bytes;
  double most_bits; /* the same in bits per weight, the mean over all matrices; 0: no limit */
  /* 1: leave out the layer that guesses further tokens (multi-token prediction), which
   * moe_generate_params.max_draft uses. With split_ffn it is always left out. */
  int32_t no_predictions;
  int32_t reserved; /* 0 */
} moe_convert_params;

/* Converts a checkpoint to a model file. Uses all CPUs; any thread. `source`: a folder with
 * config.json and safetensors, or a GGUF file. `destination` is replaced if it is a model file; any
 * other file that is not empty gives MOE_ERR_ARGUMENT. */
MOE_API moe_status moe_convert(const char* source, const char* destination,
                               const moe_convert_params* params, moe_error* error);

/* The options of a synthetic model. */
typedef struct moe_synthetic_params {
  uint32_t struct_size;
  int32_t context;          /* 0: the shape's default */
  const char* weights;      /* what moe_convert makes of 16-bit weights with it; NULL: "ternary2" */
  uint64_t seed;            /* of the random weights */
  moe_progress_fn progress; /* bytes of weights written */
  void* progress_user;      /* its first argument */
  /* 1: a file with holes instead of weights: it takes little time and room, and opens as the whole
   * one would, which tells what a session needs, but its weights cannot be read (MOE_ERR_CORRUPT,
   * unless checksums are skipped).
   * moe_synthetic_create: MOE_ERR_ARGUMENT. */
  int32_t outline;
  int32_t reserved; /* 0 */
} moe_synthetic_params;

/* The names of shapes: "tiny", "olmoe-1b-7b" ... (examples/shapes.md). NULL behind the last.
 * Static; any thread. */
MOE_API const char* moe_synthetic_shape_name(size_t index);
/* Writes a model of that shape with random weights to a file, which replaces what moe_convert
 * would. MOE_ERR_NOT_FOUND for an unknown shape, MOE_ERR_ARGUMENT for an unknown format,
 * MOE_ERR_IO, MOE_ERR_MEMORY. After MOE_ERR_CANCELLED there is no file. */
MOE_API moe_status moe_synthetic_save(const char* shape, const moe_synthetic_params* params,
                                      const char* path, moe_error* error);
/* The same in memory, for moe_model_open_memory. *data, of *size bytes, is freed by
 * moe_synthetic_free after the model and its sessions. */
MOE_API moe_status moe_synthetic_create(const char* shape, const moe_synthetic_params* params,
                                        void** data, size_t* size, moe_error* error);
/* Frees what moe_synthetic_create made; NULL is allowed. */
MOE_API void moe_synthetic_free(void* data);

/* ------------------------------------------------------------------------------------------------
 * 12. FILES THAT REPLACE OTHERS
 * In libmoe. Writes a file that may exist already, such as a saved session, so that its name holds
 * the whole old content or the whole new content at any time, also after a crash, a full disk or a
 * power failure. The new content is first a file of its own in the same folder, which keeps mode,
 * owner and group of the old one as far as the process may set them. Of a symbolic link the target
 * is replaced. Other programs that use these functions cannot write the file meanwhile.
 *
 * For NAME, the folder holds the empty .NAME.moe-lock and, while content is written,
 * .NAME.moe-XXXXXX (six random letters and digits). A killed process leaves them; they are
 * harmless, and the next moe_replacement_open for NAME takes them away. */

typedef struct moe_replacement moe_replacement; /* one thread at a time */

/* Locks the file at `path`, which need not exist, until moe_replacement_free. MOE_ERR_IO if another
 * program has locked it, if it cannot be written, is no regular file (a folder, a pipe, a device),
 * or if its folder does not exist. */
MOE_API moe_status moe_replacement_open(const char* path, moe_replacement** out, moe_error* error);
/* Begins new content, at the start of an empty file, and stores its file descriptor: use write,
 * pwrite or pread, and do not close it. It is valid until moe_replacement_commit succeeds or
 * moe_replacement_free. A second call before that empties the file, for example to write less after
 * a full disk. */
MOE_API moe_status moe_replacement_begin(moe_replacement* replacement, int* file, moe_error* error);
/* Writes the new content through to the disk and gives it the name of the file. MOE_ERR_STATE if
 * none was begun. After MOE_ERR_IO the old file is unchanged, and moe_replacement_begin may try
 * again. The lock stays, so that further content can follow. */
MOE_API moe_status moe_replacement_commit(moe_replacement* replacement, moe_error* error);
/* Drops content that was not committed, and unlocks. NULL is allowed. */
MOE_API void moe_replacement_free(moe_replacement* replacement);

/* ------------------------------------------------------------------------------------------------
 * 13. SERVICE
 * In libmoe_serve, linked in addition to libmoe. Answers many requests at the same time, in the
 * shapes of OpenAI's and Anthropic's APIs; `moe serve` speaks HTTP around it, and so can a program
 * with a web server of its own. Requests and answers are JSON, described in docs/serving.md.
 *
 * One thread of the service evaluates the model for all requests, one step after the other: in each
 * a token for every text that is being generated, and a slice of the prompts that are being read,
 * shared equally. Texts join and leave at every step. An answer depends on its request and its seed
 * alone, not on what else is being answered.
 *
 * A model whose file says how texts become vectors, and every encoder, also answers embeddings, one
 * text after the other, each request in turn, by a thread and a session for these alone. */

typedef struct moe_service
    moe_service; /* any number of threads at once, but for moe_service_free */

/* Receives the receipt of an answer: an object in one line of n_bytes bytes, terminated, valid
 * during the call. Called by the thread of the service just before the last event of the answer; it
 * holds up all requests, and may not call the service. */
typedef void (*moe_service_receipt_fn)(void* user, const char* json, size_t n_bytes);

/* The settings of a service. */
typedef struct moe_service_params {
  uint32_t struct_size;
  /* texts evaluated at the same time, each in a session; at most 1024. 0: 8, or under a cap of the
   * model fewer: as many as leave three quarters of the cap to the weights, but one at least */
  int32_t n_slots;
  const moe_session_params* session; /* of each; NULL: all defaults */
  /* in place of the model's, or NULL. Not with a capacity or `resident`, with which an answer would
   * depend on others (MOE_ERR_UNSUPPORTED) */
  const moe_router* router;
  const char* name;          /* of the model in requests and answers; NULL: the model file's */
  const char* chat_template; /* as in moe_chat_params */
  int32_t max_waiting;       /* texts that wait for a slot; 0: 64; at most 65536 */
  int32_t max_prompt;        /* tokens; 0: all but one of the context */
  /* prompt tokens evaluated in a step while texts are being generated; 0: 16; at most 4096 */
  int32_t slice;
  int32_t max_seconds; /* of a request, from its submission on; 0: any */
  /* 1: evaluates every prompt whole. 0: a prompt that begins as a text that is, or was last, in a
   * slot takes its keys and values over, to the same bits; never with an expert capacity */
  int32_t no_reuse;
  /* a folder, made if it does not exist, that keeps evaluated texts of 64 tokens or more in files,
   * from which prompts are taken over as from slots, also by a later service of the same model;
   * they are written while there are no requests. It must be trusted: its files hold texts of
   * users, and forged ones give nonsense. NULL: none. MOE_ERR_IO */
  const char* cache_folder;
  uint64_t cache_bytes; /* of this model's files, the most; the least used go. 0: 10 GB */
  /* gets the receipt of every answer (docs/serving.md), with the request in it; NULL: none */
  moe_service_receipt_fn receipt;
  void* receipt_user; /* its first argument */
  /* 0..16: as in moe_generate_params, for requests that do not say `draft` themselves. A text is
   * drafted while it is the only one in a slot. MOE_ERR_UNSUPPORTED with an expert capacity */
  int32_t max_draft;
  int32_t reserved; /* zero */
} moe_service_params;

/* The purpose of a request. */
typedef enum moe_endpoint {
  MOE_ENDPOINT_CHAT = 1,         /* /v1/chat/completions */
  MOE_ENDPOINT_COMPLETIONS = 2,  /* /v1/completions */
  MOE_ENDPOINT_TOKENIZE = 3,     /* /tokenize: answered before moe_service_submit returns */
  MOE_ENDPOINT_MESSAGES = 4,     /* /v1/messages, in the shapes of Anthropic's API */
  MOE_ENDPOINT_COUNT_TOKENS = 5, /* /v1/messages/count_tokens: also answered at once */
  MOE_ENDPOINT_RESPONSES = 6,    /* /v1/responses */
  MOE_ENDPOINT_EMBEDDINGS = 7,   /* /v1/embeddings: vectors of texts */
  /* /statistics: counts, settings, and how often each expert was used; the body has no meaning.
   * Answered at once */
  MOE_ENDPOINT_STATISTICS = 8,
  MOE_ENDPOINT_RERANK = 9 /* /v1/rerank: how well documents answer a query */
} moe_endpoint;

/* A part of an answer, or the whole. Valid during the callback. */
typedef struct moe_service_event {
  uint32_t struct_size;
  /* as HTTP counts them: 200, or that of the error in `json`. 429 and 503: there is no room, or no
   * service; 499: cancelled; 504: max_seconds are over */
  int32_t status;
  /* an object in one line, terminated: the answer, a part of a stream, or why there is none, as the
   * endpoint's API says errors */
  const char* json;
  size_t n_bytes;      /* of it */
  int32_t last;        /* 1: the last event of this request */
  int32_t retry_after; /* seconds after which the request may be tried again; 0: not said */
  /* of an event of a stream, for the line "event: NAME" in front of its data; NULL: it has none.
   * Streams without names end with the line "data: [DONE]" after a last event of status 200 */
  const char* name;
} moe_service_event;

/* Receives the events of a request, one at a time, from the thread of the service or from within
 * moe_service_submit. It holds up all requests, so it must not wait; it may call the service, but
 * not moe_service_drain or moe_service_free. */
typedef void (*moe_service_event_fn)(void* user, const moe_service_event* event);

/* The outcome of submitting a request. */
typedef struct moe_service_ticket {
  uint32_t struct_size;
  int32_t stream; /* 1: it asks for a stream of chunks; 0: for one answer, or it was refused */
  uint64_t id;    /* for moe_service_cancel; 0: it was answered at once */
} moe_service_ticket;

/* Counts of a service since it was created, and its state. */
typedef struct moe_service_stats {
  uint32_t struct_size;
  int32_t n_slots;            /* texts that can be evaluated at the same time */
  int32_t context;            /* positions of each */
  int32_t n_running;          /* texts in slots now */
  int32_t n_waiting;          /* texts that wait for one now */
  int32_t draining;           /* 1: takes no more requests */
  uint64_t kv_positions;      /* of the texts in slots now; of n_slots * context */
  uint64_t n_requests;        /* taken */
  uint64_t n_refused;         /* not taken */
  uint64_t n_answered;        /* of those taken, whole answers */
  uint64_t n_cancelled;       /* by moe_service_cancel or max_seconds */
  uint64_t n_failed;          /* otherwise */
  uint64_t prompt_tokens;     /* evaluated */
  uint64_t generated_tokens;  /* of all texts */
  uint64_t n_steps;           /* passes for all texts together */
  uint64_t n_first_tokens;    /* texts that have begun */
  double first_token_seconds; /* sum of their times from submission to the first token */
  double step_seconds;        /* time of all steps */
  uint64_t cap_bytes;         /* as in moe_memory_stats, like the next two */
  uint64_t counted_bytes;     /* of model and sessions */
  uint64_t peak_bytes;        /* the most of it */
  uint64_t expert_uses;       /* as n_uses in moe_expert_stats, like the next two */
  uint64_t expert_hits;       /* found in memory */
  uint64_t expert_read_bytes; /* read for the others */
  uint64_t reused_tokens;     /* of prompts, taken over from other texts, so not evaluated */
  uint64_t cache_bytes;       /* of the files in cache_folder */
  uint64_t cache_errors;      /* texts that could not be written to it */
} moe_service_stats;

/* Creates the sessions and starts the threads. The service keeps the model. MOE_ERR_UNSUPPORTED for
 * an encoder-decoder; MOE_ERR_RANGE, MOE_ERR_ARGUMENT for parameters; errors of moe_session_create
 * and moe_chat_create. */
MOE_API moe_status moe_service_create(moe_model* model, const moe_service_params* params,
                                      moe_service** out, moe_error* error);
/* Takes a request: `body` is JSON of n_bytes bytes. If the call returns MOE_OK, the callback gets
 * events, exactly one of them the last, also of a request that is refused (then before the call
 * returns); after that the service does not use `user`. `out` is written before the first event.
 * Otherwise there are none: MOE_ERR_ARGUMENT for arguments of this call, MOE_ERR_MEMORY. */
MOE_API moe_status moe_service_submit(moe_service* service, moe_endpoint endpoint, const char* body,
                                      size_t n_bytes, moe_service_event_fn callback, void* user,
                                      moe_service_ticket* out, moe_error* error);
/* Ends a request within a step: its last event has the status 499. Does nothing for one that has
 * ended. */
MOE_API void moe_service_cancel(moe_service* service, uint64_t id);
/* Reads the counts. MOE_ERR_ARGUMENT. */
MOE_API moe_status moe_service_get_stats(moe_service* service, moe_service_stats* out,
                                         moe_error* error);
/* From now on refuses requests, and waits until those taken have ended and cache_folder has
 * their texts, at most `seconds` (0: does not wait; below 0: any time). *empty: it is so. */
MOE_API moe_status moe_service_drain(moe_service* service, double seconds, bool* empty,
                                     moe_error* error);
/* Ends all requests, with the status 503 for their last events, and frees the service. NULL is
 * allowed. */
MOE_API void moe_service_free(moe_service* service);

#ifdef __cplusplus
}
#endif
#endif
