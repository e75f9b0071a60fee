// SPDX-License-Identifier: MIT
// Begins a text in its session, and collects pieces and log-probabilities.
#include "src/serve/text.h"

#include <new>
#include <utility>

namespace moe_serve {
namespace {

Json bytes_of(const std::string& text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

// As a chat completion shows a token; without a tokenizer, its id stands for its text. A token of
// bytes that form no character has no text: its spelling in the vocabulary tells it from others.
Json token_json(const Host& host, int32_t token, float logprob) {
  if (host.tokenizer == nullptr) {
    const std::string id = std::to_string(token);
    return {{"token", id}, {"logprob", logprob}, {"bytes", bytes_of(id)}};
  }
  const std::string text = host.token_text(token);
  if (text.find("\xEF\xBF\xBD") == text.npos) {
    return {{"token", text}, {"logprob", logprob}, {"bytes", bytes_of(text)}};
  }
  const std::string piece = moe_tokenizer_piece(host.tokenizer, token);
  return {{"token", piece}, {"logprob", logprob}, {"bytes", nullptr}};
}

}  // namespace

Text::Text(const Host& host, const Settings& settings, std::vector<int32_t> prompt, int index)
    : host_(host),
      settings_(settings),
      prompt_(std::move(prompt)),
      index_(index),
      seed_(settings.sampling.seed + static_cast<uint64_t>(index)) {}

void Text::begin(moe_session* session, moe_chat* chat) {
  std::vector<const char*> stops;
  for (const std::string& stop : settings_.stop) stops.push_back(stop.c_str());
  moe_sampling sampling = settings_.sampling;
  sampling.seed = seed_;
  sampling.bias = settings_.bias.data();
  sampling.n_bias = static_cast<int32_t>(settings_.bias.size());
  auto params = MOE_INIT(moe_generate_params);
  params.max_tokens = settings_.max_tokens;
  params.max_draft = settings_.max_draft;
  params.sampling = &sampling;
  params.stop = stops.data();
  params.n_stop = static_cast<int32_t>(stops.size());
  params.ignore_eos = settings_.ignore_eos ? 1 : 0;
  params.n_top = settings_.n_top;
  params.grammar = settings_.grammar.get();
  params.piece = take_piece;
  params.piece_user = this;
  moe_generation* raw = nullptr;
  moe_error error;
  if (chat == nullptr) {
    check(moe_generation_create(session, &params, &raw, &error), error);
  } else {
    check(moe_chat_set_session(chat, session, &error), error);
    const moe_status status = moe_chat_begin_reply(chat, &params, &raw, &error);
    moe_error ignored;  // nothing can fail
    (void)moe_chat_set_session(chat, nullptr, &ignored);
    check(status, error);
  }
  generation_.reset(raw);
}

bool Text::next() {
  moe_error error;
  return took(moe_generation_next(generation_.get(), &next_, &finish_, &error), error);
}

bool Text::advance() {
  moe_error error;
  return took(moe_generation_advance(generation_.get(), &next_, &finish_, &error), error);
}

bool Text::took(moe_status status, const moe_error& error) {
  if (out_of_memory_) throw std::bad_alloc();
  check(status, error);
  if (next_ >= 0) return true;
  const int32_t stop = moe_generation_stop(generation_.get());
  if (stop >= 0) stop_ = &settings_.stop[static_cast<size_t>(stop)];
  return false;
}

Made Text::take() { return std::exchange(made_, Made()); }

// Nothing may be thrown through the library.
bool Text::take_piece(void* user, const moe_piece* piece) {
  auto* text = static_cast<Text*>(user);
  try {
    text->add(*piece);
  } catch (const std::exception&) {
    text->out_of_memory_ = true;
  }
  return !text->out_of_memory_ && !(text->settings_.one_call && text->n_calls_ > 0);
}

void Text::add(const moe_piece& piece) {
  const bool thinking = (piece.flags & MOE_PIECE_THINKING) != 0;
  if (piece.token >= 0) {
    tokens_.push_back(piece.token);
    if (thinking) ++n_thinking_;
  }
  if ((piece.flags & MOE_PIECE_TOOL_CALL) != 0) {
    if (!settings_.one_call || n_calls_ == 0) {
      made_.calls.push_back(read_call({piece.text, piece.n_bytes}));
      made_.calls.back().at = made_.content.size();
      ++n_calls_;
    }
  } else if (host_.tokenizer != nullptr) {
    (thinking ? made_.thinking : made_.content).append(piece.text, piece.n_bytes);
  } else if (piece.token >= 0) {  // the ids, as texts without a tokenizer
    made_.content += (n_made() > 1 ? " " : "") + std::to_string(piece.token);
  }
  if (!settings_.logprobs || piece.token < 0) return;
  Json token = token_json(host_, piece.token, piece.logprob);
  Json top = Json::array();
  for (size_t i = 0; i < piece.n_top && piece.top[i].token >= 0; ++i) {
    top.push_back(token_json(host_, piece.top[i].token, piece.top[i].logprob));
  }
  token["top_logprobs"] = std::move(top);
  made_.tokens.push_back(std::move(token));
  if (thinking) ++made_.n_thinking;
}

}  // namespace moe_serve
