#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace baton::data {

/// The rule by which a text is cut into pre-tokens, within which byte pairs are merged: that of GPT-2, that of cl100k (also LLaMA
/// 3's), or that of Qwen 2, which has each digit by itself.
enum class Splitting : std::uint8_t { gpt2, cl100k, qwen2 };

/// The end of the pre-token that begins at `at`. There must be something there.
std::size_t end_of_pre_token(std::string_view text, std::size_t at, Splitting splitting);

}  // namespace baton::data
