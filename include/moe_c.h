/* moe_c.h - Mixture-of-Experts language models with ternary, int8 or 4-bit weights, where memory is
 * short.
 *
 * This header is the manual of the C API. It reads from simple to special:
 *
 *   1  Conventions and statuses       5  Tokenizer                 9  Chat
 *   2  Version                        6  Session: evaluation      10  One MoE layer on its own
 *   3  Environment                    7  Routing, experts         11  Converter (libmoe_convert)
 *   4  Model                          8  Sampling and generation
 *
 * The shortest program: moe_env_create, moe_model_open, moe_session_create, moe_tokenizer_encode,
 * moe_session_generate, then free in the opposite order. examples/generate.c is that program.
 *
 * 1. CONVENTIONS
 *
 * - A function that can fail returns moe_status. On failure its outputs are as they were, unless it
 *   says otherwise, and `error` (which may be NULL) holds the code and one line that names the
 *   thing at fault.
 * - A parameter struct begins with struct_size: set it to sizeof the struct, set the rest to zero,
 *   then change what you want. Zero always means the default. Structs only grow at their end; bytes
 *   beyond what this library knows must be zero, otherwise MOE_ERR_ARGUMENT. A NULL parameter
 *   struct means all defaults. Output structs carry struct_size too: set it before the call.
 * - Text is UTF-8. A function that writes text or an array takes (buffer, capacity, *length): it
 *   sets *length to what the whole result needs. With buffer NULL and capacity 0 it only measures.
 *   When the buffer is too small it returns MOE_ERR_TOO_LONG and writes *length alone. Lengths of
 *   text do not count the terminating zero; the capacity must have room for it.
 * - Strings given to the library are copied. Strings it returns belong to the object asked and live
 *   as long as it does.
 * - Threads: an environment and a model may be used from any number of threads. A session, chat or
 *   layer is used by one thread at a time, a second one that would change it gets MOE_ERR_STATE;
 *   moe_session_cancel alone may be called from anywhere at any time.
 * - Free children before parents: chats, sessions, models, then the environment. Every *_free takes
 *   NULL.
 * - The library never exits, aborts, prints or throws. It has no state outside its handles (but see
 *   `isa` of moe_env_params). A thread that calls it needs 256 KiB of stack.
 * - A callback must return: no C++ exception and no longjmp may leave it. Nothing in the library
 *   catches one, and the process may end there. Catch it inside, have the callback stop the call,
 *   and throw again when the call has returned.
 * - After fork() the child may only free what the parent made: its threads, and with a GPU its
 *   device, stayed in the parent. Whatever else would compute there gets MOE_ERR_STATE. What the
 *   child makes itself, it can use.
 */
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
  MOE_ERR_TOO_LONG = 6,    /* more tokens than the context holds, or a buffer that is too small */
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

/* "MOE_ERR_RANGE" and so on; "unknown status" for a number that is none. */
MOE_API const char* moe_status_name(moe_status status);

/* ------------------------------------------------------------------------------------------------
 * 2. VERSION
 * The ABI is stable within a major version. */

#define MOE_VERSION_MAJOR 0
#define MOE_VERSION_MINOR 1
#define MOE_VERSION_PATCH 0

/* Version of the library at run time: major * 1000000 + minor * 1000 + patch. */
MOE_API uint32_t moe_version(void);
MOE_API const char* moe_version_string(void);

/* ------------------------------------------------------------------------------------------------
 * 3. ENVIRONMENT
 * Owns the threads, the device, the allocator and the logger that models and sessions share. */

typedef struct moe_env moe_env;

/* Memory source of the caller. `allocate` returns NULL on failure and `align` is a power of two;
 * `deallocate` gets the size that was asked for. Called from any thread that calls the library. On
 * Linux the library may advise the kernel to use large pages for blocks that hold weights. */
typedef struct moe_allocator {
  void* (*allocate)(void* user, size_t bytes, size_t align);
  void (*deallocate)(void* user, void* pointer, size_t bytes);
  void* user;
} moe_allocator;

typedef enum moe_log_level {
  MOE_LOG_ERROR = 1,
  MOE_LOG_WARNING = 2,
  MOE_LOG_INFO = 3,
  MOE_LOG_DEBUG = 4
} moe_log_level;

/* Gets each message without a newline, possibly from several threads. */
typedef void (*moe_log_fn)(void* user, moe_log_level level, const char* text);

typedef struct moe_env_params {
  uint32_t struct_size;
  /* threads that compute, the caller's included; 0: what the machine allows this process
   * (affinity, cgroup); at most 1024 */
  int32_t threads;
  /* NULL: the best this CPU has; or a name of moe_env_isas. "amx", if chosen, asks Linux for the
   * tile registers: from then on the process cannot set alternate signal stacks that are too
   * small for them (11 KiB). */
  const char* isa;
  /* NULL or "auto": a GPU if one can be used, else the CPU, and the log says why; "cpu"; "cuda"
   * or "cuda:N": MOE_ERR_DEVICE if that GPU cannot be used */
  const char* device;
  const moe_allocator* allocator; /* NULL: malloc; copied */
  moe_log_fn log;                 /* NULL: silent */
  void* log_user;
  /* most that is allocated on the GPU; 0: 15/16 of what is free. Experts that do not fit are
   * offloaded. */
  uint64_t gpu_memory_bytes;
} moe_env_params;

MOE_API moe_status moe_env_create(const moe_env_params* params, moe_env** out, moe_error* error);
MOE_API void moe_env_free(moe_env* env);

typedef struct moe_env_info {
  uint32_t struct_size;
  int32_t threads;
  const char* device; /* "cpu", or as "cuda:0 (NVIDIA H200)" */
  const char* isa;    /* "avx512vnni", one of moe_env_isas */
} moe_env_info;

MOE_API moe_status moe_env_get_info(const moe_env* env, moe_env_info* out, moe_error* error);

/* Comma-separated names of the instruction sets built into this library, best first. */
MOE_API const char* moe_env_isas(void);

/* Separated by ", ": the weight formats ("ternary2, int8 ..."), and the forms of selection that
 * moe_session_set_router accepts ("topk:K, threshold:T"). */
MOE_API const char* moe_weight_formats(void);
MOE_API const char* moe_session_routers(void);

/* ------------------------------------------------------------------------------------------------
 * 4. MODEL
 * Opening reads metadata only; weights are mapped or read when they are first used. Immutable. */

typedef struct moe_model moe_model;
typedef struct moe_session_params moe_session_params;

/* How a file is read. */
typedef enum moe_io {
  MOE_IO_AUTO = 0, /* direct when the file is larger than the memory that is available */
  /* past the system's page cache (O_DIRECT): weights are in memory once. MOE_ERR_UNSUPPORTED
   * where the file system cannot */
  MOE_IO_DIRECT = 1,
  MOE_IO_BUFFERED = 2 /* through the page cache: what is read again may still be in memory */
} moe_io;

typedef struct moe_model_params {
  uint32_t struct_size;
  /* 1: map uncompressed weights instead of reading them. The file must then not change while the
   * model is open: a truncated mapped file kills the process. */
  int32_t map_weights;
  int32_t skip_checksums; /* 1: trust the bytes of weights (structure is always checked) */
  int32_t reserved;       /* zero */
  /* cap over weights, KV caches and scratch of this model and its sessions; 0: none. What the
   * rest leaves is an expert cache: experts that are not in it are read when they are needed, by
   * up to four threads of the model, with the same results. Mapped weights and models in memory
   * count in full. Too small: MOE_ERR_BUDGET with the sum and the least cap. */
  uint64_t memory_bytes;
  /* with a cap: the session that must fit; NULL: the default one */
  const moe_session_params* session;
  moe_io io; /* of a file. MOE_IO_DIRECT with map_weights, memory or a reader: MOE_ERR_ARGUMENT */
  int32_t reserved2; /* zero */
} moe_model_params;

/* Where a model is read from when it is neither a file nor memory. `read` fills exactly `bytes`
 * bytes from `offset` and returns 0, or anything else on failure. Called from any thread, also
 * after open. */
typedef struct moe_reader {
  uint64_t size; /* of the whole model file, in bytes */
  int (*read)(void* user, uint64_t offset, void* buffer, size_t bytes);
  void* user;
} moe_reader;

MOE_API moe_status moe_model_open(moe_env* env, const char* path, const moe_model_params* params,
                                  moe_model** out, moe_error* error);
/* `data` must stay valid and unchanged until moe_model_free. 64-byte aligned data is used in place,
 * other data is copied part by part as it is used. */
MOE_API moe_status moe_model_open_memory(moe_env* env, const void* data, size_t size,
                                         const moe_model_params* params, moe_model** out,
                                         moe_error* error);
MOE_API moe_status moe_model_open_reader(moe_env* env, const moe_reader* reader,
                                         const moe_model_params* params, moe_model** out,
                                         moe_error* error);
MOE_API void moe_model_free(moe_model* model);

typedef struct moe_model_info {
  uint32_t struct_size;
  int32_t vocab_size;
  int32_t d_model;
  int32_t n_layers;
  int32_t n_moe_layers;
  int32_t context_length;
  int32_t bos_token; /* -1: none */
  int32_t n_eos_tokens;
  const int32_t* eos_tokens;
  const char* name;
  uint64_t n_parameters;
  /* the most that one token can use: a threshold router is counted at its largest,
   * moe_routing_stats tells what it takes */
  uint64_t n_active_parameters;
  uint64_t weight_bytes;    /* all weights in memory, padding included */
  uint64_t bytes_per_token; /* weights read for one token, routers and head included */
  uint64_t file_bytes;
  /* What the head predicts: "tokens"; for an encoder also "classes" (of the whole text), "tags"
   * (of each token), "span" (where an answer begins and ends) or "none". */
  const char* head;
  int32_t n_outputs;  /* vocab_size, the labels, 2 or 0 */
  int32_t is_encoder; /* 1: for moe_session_encode alone; it generates nothing */
  int32_t mask_token; /* stands for a token that an encoder is to predict; -1: none */
  int32_t reserved;
  /* 1: for moe_session_translate. Then the first n_encoder_layers layers are the encoder's, and
   * context_length and bytes_per_token are those of the text, which the decoder makes. */
  int32_t is_encoder_decoder;
  int32_t n_encoder_layers;
  int32_t source_length; /* most tokens of a source */
  int32_t start_token;   /* in front of each text of the decoder; -1: the model is none */
} moe_model_info;

MOE_API moe_status moe_model_get_info(const moe_model* model, moe_model_info* out,
                                      moe_error* error);

typedef struct moe_model_layer_info {
  uint32_t struct_size;
  int32_t n_heads; /* 0, as the next two: the layer has no attention */
  int32_t n_kv_heads;
  int32_t head_dim;
  int32_t window;      /* 0: sees everything */
  int32_t d_ff;        /* of the dense FFN, or of one expert; 0: the layer has no FFN */
  int32_t n_experts;   /* 0: dense */
  int32_t n_active;    /* largest number of experts per (sub-)token */
  int32_t n_subheads;  /* MH-MoE's heads, otherwise 1 */
  int32_t shared_d_ff; /* 0: no shared expert */
  const char* router;  /* "softmax", "threshold" ...; "" for a dense layer */
  const char* activation;
  int32_t n_sublayers; /* X-MoE's blocks in each expert; 0: an expert is one FFN */
  int32_t k;           /* experts that each (sub-)token takes; 0: as many as reach the threshold */
  float threshold;     /* sum of probabilities; with k 0 */
  float tau;           /* temperature of a cosine router, otherwise 0 */
  float gamma;         /* capacity factor; 0: an expert takes all that choose it */
  int32_t reserved;
  /* the weights of the chosen experts: "raw", "renormalised" or "chosen" probabilities, "one"; of a
   * cosine router "softmax" or "sigmoid"; "": a router that has no choice */
  const char* gate;
  int32_t has_head;      /* MH-MoE: 1 with a head layer in front of the sub-tokens */
  int32_t has_merge;     /* 1 with a merge layer behind them */
  int32_t n_cross_heads; /* of attention to an encoder's output; 0: none */
  int32_t kv_latent;     /* numbers of a position under MOE_KV_LATENT; 0: not possible */
} moe_model_layer_info;

MOE_API moe_status moe_model_get_layer_info(const moe_model* model, int32_t layer,
                                            moe_model_layer_info* out, moe_error* error);

/* One stored matrix or vector, as the file describes it. */
typedef struct moe_tensor_info {
  uint32_t struct_size;
  int32_t layer;  /* -1: none */
  int32_t expert; /* -1: none */
  int32_t rows;
  int32_t cols;
  const char* part;        /* "embedding", "attention", "experts" ... */
  const char* role;        /* "q", "gate", "norm" ... */
  const char* format;      /* "ternary2" ... */
  const char* scale;       /* "none", "tensor", "row", "group" */
  const char* activations; /* "f32", "a8", "a8_block" */
  const char* codec;       /* "none", "zstd" */
  uint64_t bytes;          /* in memory */
  uint64_t file_offset;    /* of its segment */
} moe_tensor_info;

MOE_API size_t moe_model_tensor_count(const moe_model* model);
MOE_API moe_status moe_model_get_tensor_info(const moe_model* model, size_t index,
                                             moe_tensor_info* out, moe_error* error);

/* One line of the memory account of a model with one session. */
typedef struct moe_memory_line {
  const char* what; /* static text, "expert weights" */
  uint64_t bytes;
} moe_memory_line;

/* The account for a session with these parameters (NULL: the default ones), allocated or not. */
MOE_API moe_status moe_model_get_memory(const moe_model* model, const moe_session_params* params,
                                        moe_memory_line* lines, size_t capacity, size_t* n_lines,
                                        moe_error* error);

/* What a session with these parameters (NULL: the default ones) gets under the model's cap. */
typedef struct moe_memory_plan {
  uint32_t struct_size;
  int32_t chunk;         /* rows evaluated at once */
  uint64_t cap_bytes;    /* 0: none */
  uint64_t needed_bytes; /* the sum of moe_model_get_memory */
  uint64_t least_bytes;  /* the smallest cap that would do, with few experts in memory */
  uint64_t expert_bytes; /* of the weights of all experts */
  uint64_t n_experts;    /* of all layers */
  uint64_t n_in_memory;  /* so many of them have room there at the same time */
} moe_memory_plan;

MOE_API moe_status moe_model_get_memory_plan(const moe_model* model,
                                             const moe_session_params* params, moe_memory_plan* out,
                                             moe_error* error);

/* Memory of this machine, or of the memory cgroup of this process where that is less. */
typedef struct moe_memory_info {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t total_bytes;
  uint64_t available_bytes; /* can still be taken without swapping; caches of files count as free */
} moe_memory_info;

/* MOE_ERR_UNSUPPORTED where the system does not say. */
MOE_API moe_status moe_get_memory_info(moe_memory_info* out, moe_error* error);

/* The memory_bytes to open this model with, for one session with these parameters (NULL: the
 * default ones): 0 when everything fits into 15/16 of the memory that is available now, else these
 * 15/16. 0, too, on a GPU, for what is mapped or lies in memory, and where the system does not say.
 */
MOE_API moe_status moe_model_suggest_memory(const moe_model* model,
                                            const moe_session_params* params,
                                            uint64_t* memory_bytes, moe_error* error);

/* Reads every weight once and checks checksums, codes and scales. Can take as long as the disk
 * does. Under a cap it takes its memory from the expert cache, and no session can be made or freed
 * meanwhile; MOE_ERR_BUDGET when that is not enough beside the sessions. */
MOE_API moe_status moe_model_verify(moe_model* model, moe_error* error);

/* ------------------------------------------------------------------------------------------------
 * 5. TOKENIZER
 * Belongs to the model and lives as long as it. Any thread. */

typedef struct moe_tokenizer moe_tokenizer;

/* NULL when the model has none (token ids only). */
MOE_API const moe_tokenizer* moe_model_tokenizer(const moe_model* model);

/* Where a text begins: the model file says what stands in front of a text that begins a sequence
 * (BOS for many models, nothing for others) and behind it (formats/README.md). moe_tokenizer_encode
 * puts it there, and moe_session_perplexity in front of each window. A text that goes on is encoded
 * with MOE_ENCODE_NO_SPECIAL. Chat templates write their own. */
enum {
  MOE_ENCODE_NO_SPECIAL = 1, /* nothing in front of the text or behind it */
  /* special tokens spelled out in the text become their ids; without this, text can never forge
   * them */
  MOE_ENCODE_PARSE_SPECIAL = 2
};

/* `text` need not be terminated. Invalid UTF-8 bytes are replaced by U+FFFD first, except by a
 * tokenizer of kind "bytes", whose tokens are the bytes themselves. */
MOE_API moe_status moe_tokenizer_encode(const moe_tokenizer* tokenizer, const char* text,
                                        size_t n_bytes, uint32_t flags, int32_t* tokens,
                                        size_t capacity, size_t* n_tokens, moe_error* error);

enum { MOE_DECODE_SKIP_SPECIAL = 1 };

MOE_API moe_status moe_tokenizer_decode(const moe_tokenizer* tokenizer, const int32_t* tokens,
                                        size_t n_tokens, uint32_t flags, char* text,
                                        size_t capacity, size_t* n_bytes, moe_error* error);

/* The vocabulary's own spelling of a token ("Ġthe"); NULL when the id is out of range. Terminated.
 */
MOE_API const char* moe_tokenizer_piece(const moe_tokenizer* tokenizer, int32_t token);

/* ------------------------------------------------------------------------------------------------
 * 6. SESSION: EVALUATION
 * One text in the making: a KV cache and a position. */

typedef struct moe_session moe_session;

typedef enum moe_kv_type {
  MOE_KV_DEFAULT = 0, /* f16 */
  MOE_KV_F16 = 1,
  MOE_KV_INT8 = 2, /* one scale per head and position: half the memory; encoders: f32 always */
  MOE_KV_F32 = 3,  /* on the CPU: twice the memory, nothing rounded */
  /* On the CPU, of models with multi-head latent attention (DeepSeek, Kimi-K2): what keys and
   * values come from, as f16. A fraction of the memory; a long prompt takes longer.
   * MOE_ERR_UNSUPPORTED for other models. The first such session makes matrices in f16 that stay
   * with the model, beside those of the file. */
  MOE_KV_LATENT = 4
} moe_kv_type;

struct moe_session_params {
  uint32_t struct_size;
  /* Positions the KV cache holds, at most the model's context length. 0: that, or 4096 where it is
   * more: a longer text needs a larger context, and that its memory. An encoder-decoder's sources
   * have at most as many tokens. */
  int32_t context;
  /* rows evaluated at once during prefill, at most 4096; 0: 256, on a GPU with room 1024,
   * under a memory cap 32 to 4096, depending on the room it leaves, and with an expert capacity, an
   * encoder or an encoder-decoder the context, at most 4096 */
  int32_t chunk;
  moe_kv_type kv;
  /* of an encoder-decoder, the largest beam of its searches, 1..64; 0: 5. Each hypothesis has a KV
   * cache of its own. Any other model: 0 */
  int32_t max_beam;
};

MOE_API moe_status moe_session_create(moe_model* model, const moe_session_params* params,
                                      moe_session** out, moe_error* error);
MOE_API void moe_session_free(moe_session* session);

/* Appends `n_tokens` tokens to the text. Results do not depend on how a text is cut into calls.
 * logits: NULL; or n_rows (1 or n_tokens) rows of vocab_size floats: 1 is the last token alone,
 * what comes after it. MOE_ERR_TOO_LONG before anything changed when the context cannot hold them.
 * After MOE_ERR_CANCELLED, or a fault that only computing can find, the session stands at the last
 * chunk that was finished; of n_tokens rows of logits some may have been written.
 *
 * MOE_ERR_NON_FINITE is such a fault: a logit that is asked for, or a router's score, is NaN or
 * infinite, which happens with weights that are finite but huge. Rows whose logits nobody asked for
 * are not looked at. Then whatever reads the logits of a later token that sees such a row fails,
 * moe_session_sample and moe_session_generate too; moe_session_rewind to before it heals. */
MOE_API moe_status moe_session_eval(moe_session* session, const int32_t* tokens, size_t n_tokens,
                                    float* logits, size_t n_rows, moe_error* error);

/* Log-probabilities of given tokens, without rows of logits: appends the tokens as moe_session_eval
 * does, and writes of each the natural logarithm of the probability that it had after the text in
 * front of it. n_logprobs is n_tokens; in an empty session n_tokens - 1 (0 for no tokens), because
 * nothing is in front of the first one: MOE_ERR_ARGUMENT otherwise. Each is log-softmax of the row
 * that moe_session_eval would give, to the nearest float of a sum taken in double. Memory does not
 * grow with the text, nor with the vocabulary. Errors as moe_session_eval; of the log-probabilities
 * some may then have been written. */
MOE_API moe_status moe_session_score(moe_session* session, const int32_t* tokens, size_t n_tokens,
                                     float* logprobs, size_t n_logprobs, moe_error* error);

/* Appends one token to each of several different sessions of one model in a single pass; logits:
 * NULL or (n, vocab_size). Each session gets exactly what moe_session_eval alone would give it.
 * MOE_ERR_STATE when a session is in use or named twice; on failure none has moved, and some rows
 * of logits may have been written. MOE_ERR_NON_FINITE as moe_session_eval. On a GPU a step of up to
 * 32 sessions is recorded and replayed; with more, its kernels are launched one by one. */
MOE_API moe_status moe_sessions_step(moe_session* const* sessions, const int32_t* tokens, size_t n,
                                     float* logits, moe_error* error);

/* Appends n_tokens[i] >= 1 tokens to session i, all sessions together. `tokens` holds the tokens of
 * all sessions, concatenated in their order. logits: NULL or (n, vocab_size), of the last token of
 * each. A server can prefill a long prompt in slices while it decodes other sessions. The first
 * session's chunk (moe_session_params) is the most rows of one pass:
 * MOE_ERR_TOO_LONG for more tokens of one session, and a call with more rows takes several passes.
 * With an expert capacity each session's tokens are routed for themselves, as in a call of its own.
 */
MOE_API moe_status moe_sessions_eval(moe_session* const* sessions, const int32_t* tokens,
                                     const size_t* n_tokens, size_t n, float* logits,
                                     moe_error* error);

/* One vector of a text: the mean over all its tokens, special ones too, the first one's or the
 * last one's. */
typedef enum moe_pooling { MOE_POOL_MEAN = 0, MOE_POOL_FIRST = 1, MOE_POOL_LAST = 2 } moe_pooling;

/* What moe_session_encode writes. NULL: it is not wanted. */
typedef struct moe_encode_params {
  uint32_t struct_size;
  moe_pooling pooling;
  float* hidden;       /* (n_tokens, d_model): hidden states after the final norm */
  float* pooled;       /* (d_model) */
  float* outputs;      /* (n_rows, n_outputs) of the head; "classes": one row, of the first token */
  const int32_t* rows; /* n_rows ascending tokens whose outputs are wanted; NULL: of all tokens */
  size_t n_rows;       /* with NULL n_tokens, or 1 for "classes" */
} moe_encode_params;

/* Runs the model over a text, nothing of which stays in the session. In an encoder every token sees
 * every other. In a decoder a token sees what is in front of it, as ever: the text's own tokens and
 * all that the session holds; any number of tokens that the context has room for, and with a NULL
 * `hidden` memory for one chunk of them. MOE_ERR_UNSUPPORTED for outputs of a decoder (its logits
 * come from moe_session_eval), MOE_ERR_TOO_LONG for more tokens than the context has room for, or
 * than the chunk of an encoder (which is the context, at most 4096, unless one was chosen), both
 * before anything is written. MOE_ERR_NON_FINITE when something asked for is NaN or infinite. After
 * that and after MOE_ERR_CANCELLED the contents of the arrays are undefined. Do not pad: pass one
 * text at a time. */
MOE_API moe_status moe_session_encode(moe_session* session, const int32_t* tokens, size_t n_tokens,
                                      const moe_encode_params* params, moe_error* error);

/* Called now and then, with what is counted named where it is used; return false to stop with
 * MOE_ERR_CANCELLED. */
typedef bool (*moe_progress_fn)(void* user, uint64_t done, uint64_t total, const char* what);

/* When a beam search ends, and which of the ended texts it returns. */
typedef enum moe_beam_stop {
  /* once `beam` texts have ended; later ones of the same step are refused (fairseq) */
  MOE_BEAM_STOP_COUNT = 0,
  /* once no text can any longer beat the worst of the `beam` best that ended (early_stopping=False
   * of transformers) */
  MOE_BEAM_STOP_BOUND = 1,
  /* with the step in which `beam` texts have ended, the best of which are kept
   * (early_stopping=True of transformers 5) */
  MOE_BEAM_STOP_STEP = 2
} moe_beam_stop;

/* Lengths count tokens without the end-of-text token. */
typedef struct moe_translate_params {
  uint32_t struct_size;
  int32_t beam;       /* 0: 5, or the session's max_beam where that is less */
  int32_t n_best;     /* texts wanted, at most `beam`; 0: 1 */
  int32_t min_tokens; /* 0: 1; -1: none, so that a text may be empty */
  int32_t max_tokens; /* then every text ends; 0: 256, or the context - 1 where that is less */
  /* alpha: a text's score is the sum of its log-probabilities / its tokens^alpha, with the
   * end-of-text token; 0: 1 */
  float length_penalty;
  int32_t no_length_penalty; /* 1: alpha is 0, and a score the sum itself */
  moe_beam_stop stop;
  const int32_t* prefix; /* what every text begins with, such as the token of a language; NULL: */
  size_t n_prefix;       /* what the model file says */
  /* Before each token of the texts: tokens, max_tokens, "translate". Return false to stop with
   * MOE_ERR_CANCELLED. May be NULL. */
  moe_progress_fn progress;
  void* user;
} moe_translate_params;

typedef struct moe_translation {
  const int32_t* tokens; /* without the start and with the end-of-text token */
  size_t n_tokens;
  float score;
  int32_t reserved;
} moe_translation;

typedef struct moe_translate_result {
  uint32_t struct_size;
  uint32_t reserved;
  /* Best first, the session's memory, valid until it translates again or is freed. Fewer than
   * n_best where fewer ended. */
  const moe_translation* texts;
  size_t n_texts;
} moe_translate_result;

/* The best texts that an encoder-decoder makes of a source: its tokens with all that the model's
 * training had around them (moe_tokenizer_encode without flags puts that there). Beam search: in
 * each step every running text is continued by every token but padding; the continuations are
 * sorted by their sum of log-probabilities, ties by the better text and then the lower token; of
 * the first 2 beam, an end among the first `beam` ends its text, one behind them is thrown away,
 * and the first `beam` others run on. A beam of 1 is greedy.
 *
 * Then the session has read the source, and is empty. MOE_ERR_UNSUPPORTED for any other model;
 * MOE_ERR_RANGE for a beam outside 1..64 or above max_beam, n_best above the beam, min_tokens above
 * max_tokens, a length penalty outside -100..100, or when no text ended; MOE_ERR_TOO_LONG for more
 * tokens of the source than the session takes (the model's, and where a context or a chunk was
 * chosen at most those), or max_tokens that the context cannot hold beside the start token.
 * In a library built with MOE_TRANSLATE=OFF this and the next function give MOE_ERR_UNSUPPORTED. */
MOE_API moe_status moe_session_translate(moe_session* session, const int32_t* source,
                                         size_t n_source, const moe_translate_params* params,
                                         moe_translate_result* out, moe_error* error);

/* Reads a source in place of the one before, and empties the session. After that it is used as one
 * of a decoder, and its text, which begins with start_token of moe_model_info, sees the source:
 * moe_session_score gives the probability of a given translation, moe_session_generate draws one.
 * (Without a source these give MOE_ERR_STATE.) hidden: NULL, or (n_source, d_model) for the
 * encoder's output. Errors as moe_session_translate; MOE_ERR_NON_FINITE when `hidden` would not
 * be numbers. A call that was refused for its arguments has changed nothing; after any other
 * failure there is no source. */
MOE_API moe_status moe_session_read_source(moe_session* session, const int32_t* source,
                                           size_t n_source, float* hidden, moe_error* error);

/* Tokens evaluated so far, and the most the session holds. */
MOE_API int32_t moe_session_position(const moe_session* session);
MOE_API int32_t moe_session_context(const moe_session* session);

/* Forgets everything from `position` on, so that a common prefix can be used again. */
MOE_API moe_status moe_session_rewind(moe_session* session, int32_t position, moe_error* error);

/* Where a saved session goes: `write` gets its bytes from the first to the last, and returns 0, or
 * anything else on failure. */
typedef struct moe_writer {
  int (*write)(void* user, const void* bytes, size_t n_bytes);
  void* user;
} moe_writer;

/* Writes the session's text with its keys and values, so that it can go on later, in another
 * process and on another device, without evaluating the text again: about as many bytes as the
 * positions in use take in the KV cache. The first bytes name the model file by a hash. Routers,
 * statistics and logits are no part of it: logits after the last token are computed again from that
 * token alone, and are others where a router has a capacity. MOE_ERR_UNSUPPORTED for an encoder or
 * an encoder-decoder, MOE_ERR_IO when the writer failed. */
MOE_API moe_status moe_session_save(moe_session* session, const moe_writer* writer,
                                    moe_error* error);

/* Replaces the session's text by a saved one. It may come from anybody: MOE_ERR_FORMAT (no saved
 * session, cut off or added to), MOE_ERR_VERSION, MOE_ERR_CORRUPT (a checksum, or a token that is
 * no token). MOE_ERR_ARGUMENT when it is of another model file or has another type of keys and
 * values, or where positions depend on the context (LongRoPE) another context; MOE_ERR_TOO_LONG
 * when the context is too small. Keys and values themselves are not judged: what somebody forged
 * together with its checksum makes nonsense or MOE_ERR_NON_FINITE later on. When its first 64 bytes
 * are refused the session stays as it was, after any other failure it is empty. */
MOE_API moe_status moe_session_load(moe_session* session, const moe_reader* reader,
                                    moe_error* error);

/* A second session of the same model, with the same text, parameters and router, which shares
 * nothing with the first one that changes: each goes on alone, and may be freed in any order. What
 * is counted or watched is not copied. Counts against the cap as any session: MOE_ERR_BUDGET.
 * MOE_ERR_UNSUPPORTED for an encoder-decoder. */
MOE_API moe_status moe_session_fork(moe_session* session, moe_session** out, moe_error* error);

/* Makes the call in progress on this session return MOE_ERR_CANCELLED within one layer's time. Any
 * thread. Without a call in progress it does nothing. */
MOE_API void moe_session_cancel(moe_session* session);

typedef struct moe_perplexity {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t n_scored; /* tokens whose probability was taken */
  double mean_nll;   /* mean negative log-probability, nats per token */
  double perplexity; /* exp(mean_nll) */
} moe_perplexity;

/* Perplexity of a text in windows of the session's context that do not overlap. `tokens` are those
 * of MOE_ENCODE_NO_SPECIAL; each window begins as a text does, see 5. Where nothing stands in
 * front, a window's first token is not scored. The session must be empty (position 0) and is empty
 * afterwards. MOE_ERR_NON_FINITE as moe_session_eval; MOE_ERR_UNSUPPORTED for an encoder-decoder,
 * whose texts moe_session_score scores. progress: after each window, or NULL. */
MOE_API moe_status moe_session_perplexity(moe_session* session, const int32_t* tokens,
                                          size_t n_tokens, moe_progress_fn progress, void* user,
                                          moe_perplexity* out, moe_error* error);

/* ------------------------------------------------------------------------------------------------
 * 7. ROUTING AND EXPERTS */

/* Overrides the routing of every MoE layer of this session:
 *   "threshold:0.9"  experts in order of probability until their sum reaches 0.9
 *   "topk:4"         the 4 most probable
 * followed by any of ",gamma=1.25" ",min_capacity=4" ",resident=0.05", and for a threshold
 * ",min_k=1" ",max_k=8"; "gamma=1.25" alone keeps the router. Weights follow the model's own rule.
 * Only routers with a softmax over all experts can be changed so. NULL: as in the file.
 *
 * resident, in 0..1, is for a memory cap: an expert that is not in memory, and for which another
 * would have to leave, is skipped when none of the tokens evaluated together gives it a larger
 * probability. Each token keeps the best of its experts. Where the model's rule divides weights by
 * their sum, those of the experts that are left are divided by theirs. Results then depend on what
 * happens to be in memory, and two runs can differ. MOE_ERR_UNSUPPORTED on a GPU.
 *
 * gamma gives each expert a capacity, counted over the tokens of one call: a call is then one
 * chunk. A chunk that params.chunk left open grows to the context, at most 4096, with the memory
 * that it needs (MOE_ERR_BUDGET when a cap has no room for it); one that was chosen stays, and a
 * longer call gets MOE_ERR_TOO_LONG. */
MOE_API moe_status moe_session_set_router(moe_session* session, const char* router,
                                          moe_error* error);

/* Counting starts at zero with the call and costs little, on a GPU a wait behind each layer; off by
 * default. Counted are the tokens that became part of the text: not those of a pass that was
 * cancelled or failed. */
MOE_API moe_status moe_session_count_routing(moe_session* session, bool on, moe_error* error);

typedef struct moe_routing_stats {
  uint32_t struct_size;
  int32_t n_experts;
  uint64_t n_tokens;      /* (sub-)tokens routed */
  uint64_t n_dropped;     /* pairs refused by a capacity */
  uint64_t n_activations; /* inner activations computed, as in moe_activation_stats */
  uint64_t n_positive;    /* of these, above zero */
  /* (n_experts), the session's memory, valid until it counts again */
  const uint64_t* tokens_per_expert;
  /* (n_experts + 1): how many (sub-)tokens were served by i experts */
  const uint64_t* experts_per_token;
  uint64_t n_skipped;         /* pairs that "resident=P" skipped */
  double skipped_probability; /* of those, summed up; at most n_tokens */
} moe_routing_stats;

/* MOE_ERR_UNSUPPORTED for a dense layer, MOE_ERR_STATE when nothing is being counted. */
MOE_API moe_status moe_session_get_routing(const moe_session* session, int32_t layer,
                                           moe_routing_stats* out, moe_error* error);

/* Inner activations of one layer, dense or of experts: act(gate) of a gated network, act(up) of
 * another, one for each hidden unit of a token, of an expert for each token that it served. Those
 * of a shared expert are not counted. */
typedef struct moe_activation_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t n_activations; /* 0 for a layer without an FFN */
  uint64_t n_positive;    /* of these, above zero */
} moe_activation_stats;

/* What moe_session_count_routing counted. MOE_ERR_STATE when nothing is being counted. */
MOE_API moe_status moe_session_get_activations(const moe_session* session, int32_t layer,
                                               moe_activation_stats* out, moe_error* error);

/* What one MoE layer chose for the tokens of one pass. */
typedef struct moe_routing_choices {
  int32_t layer;
  int32_t position; /* of the first token in the text; the others follow it */
  int32_t n_tokens; /* of MH-MoE, sub-tokens: as many as the layer has sub-heads for each token */
  int32_t n_slots;  /* the most experts that one can take */
  int32_t* counts;  /* (n_tokens): experts taken, 1..n_slots */
  int32_t* experts; /* (n_tokens, n_slots), best first; beyond the count anything */
  float* weights;   /* (n_tokens, n_slots) */
  /* What the router read, (n_tokens, d): the hidden states after the norm in front of the layer, of
   * MH-MoE the sub-tokens. */
  const float* hidden;
  /* (n_tokens, n_experts): logits before softmax or sigmoid, cosines; NULL for a router by token */
  const float* scores;
  int32_t d;
  int32_t n_experts;
} moe_routing_choices;

/* Called before the choices are used. It may write others into them: experts of the layer, each
 * once for a token, with finite weights; for the rest of the call MOE_ERR_RANGE, MOE_ERR_ARGUMENT
 * or MOE_ERR_NON_FINITE otherwise. A capacity is applied afterwards. On the thread of the caller,
 * for passes that then fail or are cancelled too. Must not call the session, but for
 * moe_session_cancel. */
typedef void (*moe_routing_fn)(void* user, moe_routing_choices* choices);

/* For the passes to come; NULL: no longer. MOE_ERR_UNSUPPORTED on a GPU. */
MOE_API moe_status moe_session_watch_routing(moe_session* session, moe_routing_fn callback,
                                             void* user, moe_error* error);

/* Experts that operations used. An operation is one MoE layer of one chunk of tokens; it uses an
 * expert once, however many of the tokens chose it. All zero where every expert stays in memory. */
typedef struct moe_expert_stats {
  uint64_t n_uses;
  uint64_t n_hits;     /* of these, experts found in memory */
  uint64_t read_bytes; /* for the others */
  double wait_seconds; /* for which calls waited until experts were read */
} moe_expert_stats;

/* Memory and expert statistics of a model under a cap. The bytes are of the model and all of its
 * sessions, and zero without a cap. */
typedef struct moe_memory_stats {
  uint32_t struct_size;
  uint32_t reserved;
  moe_expert_stats session; /* of this session; moe_sessions_step counts for its first one */
  moe_expert_stats model;   /* of all sessions since the model was opened */
  uint64_t cap_bytes;
  uint64_t counted_bytes; /* of everything that counts against the cap, now */
  uint64_t peak_bytes;    /* the most that this has been */
  uint64_t arena_bytes;   /* room for experts */
  uint64_t expert_bytes;  /* of the experts that are in it */
} moe_memory_stats;

/* Between calls of the session. */
MOE_API moe_status moe_session_get_memory_stats(const moe_session* session, moe_memory_stats* out,
                                                moe_error* error);

/* ------------------------------------------------------------------------------------------------
 * 8. SAMPLING AND GENERATION */

typedef struct moe_logit_bias {
  int32_t token;
  float bias; /* added to the logit; -INFINITY bans the token */
} moe_logit_bias;

/* Applied in this order: bias, repetition penalty, temperature, top-k, top-p, min-p. */
typedef struct moe_sampling {
  uint32_t struct_size;
  float temperature;         /* 0: greedy, ties to the lower id */
  int32_t top_k;             /* 0: off */
  float top_p;               /* 0 or 1: off; in (0, 1] */
  float min_p;               /* 0: off; in [0, 1): at least this share of the best probability */
  float repetition_penalty;  /* 0 or 1: off; in 0.01..100 */
  int32_t repetition_window; /* last tokens that are penalised; 0: 64 */
  int32_t n_bias;
  uint64_t seed; /* same seed, same text */
  const moe_logit_bias* bias;
} moe_sampling;

typedef struct moe_token_logprob {
  int32_t token;
  float logprob; /* natural logarithm, of the model's own distribution before sampling filters */
} moe_token_logprob;

/* Draws from the logits after the last evaluated token; the session does not move. top: NULL or
 * room for n_top (at most 64) candidates, best first, token -1 beyond the vocabulary. The draw
 * number is the session's position: sampling twice without moving gives the same token. */
MOE_API moe_status moe_session_sample(moe_session* session, const moe_sampling* sampling,
                                      moe_token_logprob* out, moe_token_logprob* top, size_t n_top,
                                      moe_error* error);

enum { MOE_PIECE_THINKING = 1 /* of a chat: not part of the answer */ };

/* A piece of generated text. With a tokenizer `text` holds whole UTF-8 characters that can be shown
 * at once; it may be empty (the token's bytes wait for the next). Only the library makes one; it
 * may grow at its end. */
typedef struct moe_piece {
  int32_t token; /* -1: text that was held back, without a new token */
  float logprob;
  const char* text;
  size_t n_bytes;
  const moe_token_logprob* top; /* n_top of them */
  size_t n_top;
  uint32_t flags; /* MOE_PIECE_* */
} moe_piece;

/* Return false to stop (MOE_FINISH_CALLBACK). May call moe_session_cancel, nothing else of the
 * session. */
typedef bool (*moe_piece_fn)(void* user, const moe_piece* piece);

/* The logits of the token that is to be chosen next: n_logits of them, the vocabulary, which the
 * callback may change within that; -INFINITY bans a token. tokens: the text so far. Sampling, and
 * the logprobs of the piece, then go by what it left; the session's own logits stay. Return false
 * to stop (MOE_FINISH_CALLBACK). Runs on the thread of the caller, once for each token. May call
 * moe_session_cancel, nothing else of the session: what would change it gets MOE_ERR_STATE. A NaN
 * or +INFINITY that it leaves is MOE_ERR_NON_FINITE, a ban of all MOE_ERR_RANGE; the session then
 * stands where it was. */
typedef bool (*moe_logits_fn)(void* user, const int32_t* tokens, size_t n_tokens, float* logits,
                              size_t n_logits);

typedef enum moe_finish {
  MOE_FINISH_LENGTH = 1,  /* max_tokens were made */
  MOE_FINISH_EOS = 2,     /* an end-of-text token */
  MOE_FINISH_STOP = 3,    /* a stop string; nothing of it was given out */
  MOE_FINISH_CONTEXT = 4, /* the context is full */
  MOE_FINISH_CALLBACK = 5 /* a callback said so */
} moe_finish;

typedef struct moe_generate_params {
  uint32_t struct_size;
  int32_t max_tokens;           /* 0: until the context is full */
  const moe_sampling* sampling; /* NULL: greedy */
  const char* const* stop;      /* at most 64, of at most 4096 bytes each; need a tokenizer */
  int32_t n_stop;
  int32_t ignore_eos;    /* 1: go on after end-of-text tokens */
  int32_t n_top;         /* candidates reported with each piece; at most 64 */
  int32_t reserved;      /* zero */
  moe_piece_fn callback; /* NULL: none */
  void* user;
  moe_logits_fn logits_callback; /* NULL: none */
  void* logits_user;
} moe_generate_params;

typedef struct moe_generate_result {
  uint32_t struct_size;
  moe_finish finish;
  int32_t n_prompt;
  int32_t n_generated;
  double prompt_seconds;   /* evaluating the prompt */
  double generate_seconds; /* everything after it */
} moe_generate_result;

/* Appends the prompt's tokens, then generates. With no prompt it goes on from where the session is
 * (which must not be empty). On MOE_ERR_CANCELLED what the callback got so far stays valid. */
MOE_API moe_status moe_session_generate(moe_session* session, const int32_t* prompt,
                                        size_t n_prompt, const moe_generate_params* params,
                                        moe_generate_result* out, moe_error* error);

/* ------------------------------------------------------------------------------------------------
 * 9. CHAT
 * A conversation over a session: messages, the template that makes one text of them, replies.
 *
 * Templates are Jinja, in the part of the language that checkpoints use and with the results of
 * jinja2. Limits on steps, text and depth hold for any template and conversation. What comes from
 * messages and variables can never become special tokens, only the template can spell those.
 *
 * In a library built with MOE_CHAT=OFF every call that returns a status gives MOE_ERR_UNSUPPORTED.
 */

typedef struct moe_chat moe_chat;

/* The Jinja template that the model file carries; NULL: none. */
MOE_API const char* moe_model_chat_template(const moe_model* model);

/* Comma-separated names of the templates built in: "chatml", "llama3", "mistral"; and "plain",
 * which only puts the messages behind each other, for models that continue a text. */
MOE_API const char* moe_chat_template_names(void);

typedef enum moe_thinking {
  MOE_THINKING_DEFAULT = 0, /* as the template does by itself */
  MOE_THINKING_ON = 1,
  MOE_THINKING_OFF = 2
} moe_thinking;

typedef struct moe_chat_params {
  uint32_t struct_size;
  /* On and off set the template's variables enable_thinking and thinking; MOE_ERR_UNSUPPORTED when
   * it has neither. */
  moe_thinking thinking;
  /* A name of moe_chat_template_names, or Jinja text. NULL: the model's own, MOE_ERR_NOT_FOUND when
   * it has none. */
  const char* chat_template;
  const char* system; /* text in front of the conversation, with the role "system"; NULL: none */
  /* "NAME=VALUE" for the template. true, false, none and integers are values of their kind, any
   * other VALUE is text. "plain" knows user_prefix and reply_prefix. */
  const char* const* variables;
  int32_t n_variables;
  int32_t reserved; /* zero */
  /* "YYYY-MM-DD" for templates that ask (strftime_now). NULL: today, UTC. "": no date. */
  const char* date;
} moe_chat_params;

/* The session must have a tokenizer, and must outlive the chat. It need not be empty, and several
 * chats may share it: each reply uses what the session holds as far as it is the same. */
MOE_API moe_status moe_chat_create(moe_session* session, const moe_chat_params* params,
                                   moe_chat** out, moe_error* error);
MOE_API void moe_chat_free(moe_chat* chat);
/* Goes on in another session of the same model (else MOE_ERR_ARGUMENT), such as one with a larger
 * context. The old one may be freed before or after that. The next reply evaluates what the new one
 * does not hold. */
MOE_API moe_status moe_chat_set_session(moe_chat* chat, moe_session* session, moe_error* error);

/* Appends a message; role: "user", "assistant" or whatever else the template knows. `content` need
 * not be terminated. */
MOE_API moe_status moe_chat_add(moe_chat* chat, const char* role, const char* content,
                                size_t n_bytes, moe_error* error);
/* Keeps the first n_messages messages. The system text is none of them and stays. */
MOE_API moe_status moe_chat_truncate(moe_chat* chat, size_t n_messages, moe_error* error);
/* Replaces the system text; NULL: none. */
MOE_API moe_status moe_chat_set_system(moe_chat* chat, const char* system, moe_error* error);

typedef struct moe_chat_message {
  uint32_t struct_size;
  uint32_t reserved;
  const char* role; /* terminated; the chat's memory, valid until its messages change */
  const char* content;
  size_t n_bytes;
  const char* thinking; /* of a reply, "": none */
  size_t n_thinking_bytes;
} moe_chat_message;

MOE_API size_t moe_chat_message_count(const moe_chat* chat);
MOE_API moe_status moe_chat_get_message(const moe_chat* chat, size_t index, moe_chat_message* out,
                                        moe_error* error);

/* The conversation as the model reads it, with its special tokens spelled out; begin_reply: with
 * the beginning of the next reply. MOE_ERR_TEXT when the template refuses the conversation. */
MOE_API moe_status moe_chat_render(const moe_chat* chat, bool begin_reply, char* text,
                                   size_t capacity, size_t* n_bytes, moe_error* error);
/* The same as token ids. */
MOE_API moe_status moe_chat_tokens(const moe_chat* chat, bool begin_reply, int32_t* tokens,
                                   size_t capacity, size_t* n_tokens, moe_error* error);

typedef struct moe_chat_result {
  uint32_t struct_size;
  moe_finish finish;
  int32_t n_prompt; /* tokens of the conversation, up to the reply */
  int32_t n_reused; /* of these, held by the session already and not evaluated again */
  int32_t n_generated;
  int32_t n_thinking; /* of these, thinking and its tags */
  double prompt_seconds;
  double generate_seconds;
} moe_chat_result;

/* Generates the reply to the messages so far and appends it to them, with the role "assistant".
 * It ends at the model's and the tokenizer's end-of-text tokens (MOE_FINISH_EOS), and with a
 * built-in template at its end of a turn.
 *
 * Thinking, which is what a reply begins with between <think> and </think>, between other tags that
 * the template names, or in channels other than "final", comes in pieces with MOE_PIECE_THINKING,
 * without the tags. Later turns see of it what the template lets through.
 *
 * MOE_ERR_TOO_LONG when the conversation fills the context. MOE_ERR_CANCELLED after a cancel of the
 * session, which is seen while the template runs, too. After any failure the messages are as
 * they were, and the session holds some beginning of the conversation. A reply that was stopped
 * (by its length, the context, a stop string or the callback) is appended as far as it came. */
MOE_API moe_status moe_chat_reply(moe_chat* chat, const moe_generate_params* params,
                                  moe_chat_result* out, moe_error* error);

/* ------------------------------------------------------------------------------------------------
 * 10. ONE MOE LAYER ON ITS OWN
 * The library as a kernel for other runtimes: weights come in as float matrices in memory, are
 * packed into the format asked for, and (n, d_model) goes to (n, d_model). No residual, no norm.
 * In a library built with MOE_LAYER=OFF both calls give MOE_ERR_UNSUPPORTED. */

typedef struct moe_layer moe_layer;

/* One expert. Matrices are row-major (out, in); d_in is d_model / n_subheads. A plain FFN has no
 * gate. */
typedef struct moe_expert_weights {
  const float* gate;      /* (d_ff, d_in) or NULL */
  const float* up;        /* (d_ff, d_in) */
  const float* down;      /* (d_in, d_ff) */
  const float* gate_bias; /* (d_ff) or NULL */
  const float* up_bias;   /* (d_ff) or NULL */
  const float* down_bias; /* (d_in) or NULL */
} moe_expert_weights;

/* Sizes and counts are in 1..65536. */
typedef struct moe_layer_params {
  uint32_t struct_size;
  int32_t d_model;
  int32_t d_ff;
  int32_t n_experts;
  int32_t n_subheads;     /* 0 or 1: ordinary; more: MH-MoE */
  int32_t max_rows;       /* most tokens of one call; 0: 256 */
  const char* activation; /* "relu", "gelu", "gelu_tanh", "silu", "relu2", "tanh"; NULL: "silu" */
  /* "topk:2", "threshold:0.9", "topk:2,renormalise", "threshold:0.9,one" (each chosen expert with
   * weight 1), "cosine:1,tau=0.07", "sigmoid:2", "base", "sparsemixer"; NULL: "topk:1" */
  const char* router;
  /* format of experts, head and merge, one of moe_weight_formats(); NULL: "f32" */
  const char* weights;
  const char* activations;           /* "f32", "a8", "a8_block"; NULL: what suits the format */
  const moe_expert_weights* experts; /* n_experts of them */
  /* (n_experts, d_in); cosine: the expert embeddings (n_experts, d_e) */
  const float* router_weight;
  const float* router_bias;         /* (n_experts) or NULL; sigmoid: the selection bias */
  const float* router_proj;         /* cosine: (d_e, d_in) */
  int32_t d_e;                      /* cosine */
  int32_t shared_d_ff;              /* 0: no shared expert */
  const moe_expert_weights* shared; /* on d_model, added to the sum */
  const float* shared_gate; /* (d_model) or NULL: sigmoid(x . g) in front of the shared expert */
  const float* head;        /* MH-MoE: (d_model, d_model), or NULL: no head layer */
  const float* head_bias;   /* (d_model) or NULL */
  const float* merge;       /* the same behind the experts */
  const float* merge_bias;  /* (d_model) or NULL */
} moe_layer_params;

MOE_API moe_status moe_layer_create(moe_env* env, const moe_layer_params* params, moe_layer** out,
                                    moe_error* error);
MOE_API void moe_layer_free(moe_layer* layer);
/* x, y: (n, d_model), may be the same. Bit-identical for any thread count and any split of the
 * rows. MOE_ERR_NON_FINITE for NaN or infinity in x, before anything is written; a fault that only
 * computing can find leaves the max_rows rows written that came before it. */
MOE_API moe_status moe_layer_forward(moe_layer* layer, const float* x, size_t n, float* y,
                                     moe_error* error);

/* ------------------------------------------------------------------------------------------------
 * 11. CONVERTER
 * In libmoe_convert, to be linked beside libmoe. Writes NAME.partial beside the destination and
 * renames it at the end: the final name never holds half a file. */

typedef struct moe_convert_params {
  uint32_t struct_size;
  int32_t compress;    /* 1: zstd for segments where it saves 5 % or more */
  const char* weights; /* NULL or "auto"; one of moe_weight_formats() */
  /* "PATTERN=FORMAT" on tensor names; * matches anything; last wins */
  const char* const* overrides;
  int32_t n_overrides;
  int32_t verify; /* 1: read the result again and compare every weight with the checkpoint */
  moe_progress_fn progress; /* bytes of the checkpoint; return false to cancel. While the source
                               reads `calibration` ("calibrate"): tokens */
  /* One JSON object for each matrix stored and one for the whole at the end. May be NULL. */
  void (*report)(void* user, const char* json);
  void* user;
  /* Keys of config.json, or of a GGUF file, that are taken for missing: for those that the importer
   * does not know and that do not change what the model computes. */
  const char* const* ignored_keys;
  int32_t n_ignored_keys;
  int32_t reserved; /* 0 */
  /* A text of n_calibration bytes for the source model to read, or NULL. The second moments of
   * every matrix's inputs, of an expert's over the tokens that chose it, say how later weights make
   * up for the error of a rounded one. Runs on all CPUs, with a copy of the model in floats beside
   * the destination meanwhile (a file without a name). MOE_ERR_ARGUMENT, before anything is
   * written, when the text has no tokens, the checkpoint no tokenizer, or nothing is rounded and
   * split_ffn is 0. */
  const char* calibration;
  size_t n_calibration;
  /* Cuts every FFN of a dense model into this many experts; the number must divide the FFN's width;
   * 0: none. A router is fitted to the FFN's inputs on `calibration`. The file's own threshold is
   * 1, which takes all experts and computes what the dense model does; moe_session_set_router takes
   * fewer, "threshold:T" or "topk:K". MOE_ERR_ARGUMENT without `calibration`. */
  int32_t split_ffn;
  int32_t split_by_clusters; /* 1: neurons of like weights together; 0: neighbours */
} moe_convert_params;

/* `source`: a folder with config.json and safetensors, or a GGUF file. */
MOE_API moe_status moe_convert(const char* source, const char* destination,
                               const moe_convert_params* params, moe_error* error);

typedef struct moe_synthetic_params {
  uint32_t struct_size;
  int32_t context;     /* 0: as the shape says */
  const char* weights; /* NULL: "ternary2"; format of the linear weights */
  uint64_t seed;
  moe_progress_fn progress; /* bytes of weights made; return false to cancel. May be NULL. */
  void* user;
} moe_synthetic_params;

/* Comma-separated names of the shapes: "tiny", "olmoe-1b-7b" ... (examples/shapes.md). */
MOE_API const char* moe_synthetic_shapes(void);
/* A model of that shape with random weights, as a file, or in memory for moe_model_open_memory.
 * MOE_ERR_CANCELLED leaves neither behind. */
MOE_API moe_status moe_synthetic_save(const char* shape, const moe_synthetic_params* params,
                                      const char* path, moe_error* error);
MOE_API moe_status moe_synthetic_create(const char* shape, const moe_synthetic_params* params,
                                        void** data, size_t* size, moe_error* error);
MOE_API void moe_synthetic_free(void* data);

#ifdef __cplusplus
}
#endif
#endif
