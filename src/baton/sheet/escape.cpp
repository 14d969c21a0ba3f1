#include "baton/sheet/escape.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace baton::sheet {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 41> latex_signs{{
    {"\\", "\\textbackslash{}"},
    {"{", "\\{"},
    {"}", "\\}"},
    {"$", "\\$"},
    {"&", "\\&"},
    {"#", "\\#"},
    {"%", "\\%"},
    {"_", "\\_"},
    {"^", "\\^{}"},
    {"~", "\\~{}"},
    {"`", "\\`{}"},
    {"<", "$<$"},
    {">", "$>$"},
    {"×", "$\\times$"},
    {"µ", "$\\mu$"},
    {"μ", "$\\mu$"},
    {"−", "$-$"},
    {"–", "--"},
    {"—", "---"},
    {"·", "$\\cdot$"},
    {"±", "$\\pm$"},
    {"→", "$\\to$"},
    {"≤", "$\\le$"},
    {"≥", "$\\ge$"},
    {"≈", "$\\approx$"},
    {"²", "$^2$"},
    {"³", "$^3$"},
    {"ⁿ", "$^n$"},
    {"₀", "$_0$"},
    {"₁", "$_1$"},
    {"₂", "$_2$"},
    {"α", "$\\alpha$"},
    {"β", "$\\beta$"},
    {"∞", "$\\infty$"},
    {"√", "$\\surd$"},
    {"Σ", "$\\Sigma$"},
    {"…", "\\ldots{}"},
    {"\n", "\\\\\n"},
    {"₅", "$_5$"},
    {"ₙ", "$_n$"},
    {"\u00a0", "~"},
}};

/// The number of bytes of a text's first sign in UTF-8; 0 if it is not in UTF-8.
std::size_t sign_length(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const std::size_t length = byte(0) < 0x80   ? 1
                             : byte(0) < 0xc2 ? 0
                             : byte(0) < 0xe0 ? 2
                             : byte(0) < 0xf0 ? 3
                             : byte(0) < 0xf5 ? 4
                                              : 0;
  for (std::size_t at = 1; at < length; ++at) {
    if (at >= text.size() || (byte(at) & 0xc0U) != 0x80U) {
      return 0;
    }
  }
  return length;
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string markdown_text(std::string_view text) {
  constexpr std::string_view marks = "\\`*_[]<>#$~|&";
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const bool begins_list = (at == 0 && (c == '-' || c == '+' || c == '=')) || (at == digits && at > 0 && (c == '.' || c == ')'));
    out += (begins_list || marks.find(c) != std::string_view::npos ? "\\" : "") + std::string(1, c);
  }
  return out;
}

std::string unbroken(std::string_view text) {
  constexpr std::array<std::string_view, 17> units{"%",   "ns",  "µs", "ms",   "s",    "B",     "bytes", "KiB",  "MiB",
                                                   "GiB", "TiB", "GB", "GB/s", "FLOP", "GFLOP", "MFLOP", "TFLOP"};
  const auto is_digit = [&](std::size_t at) { return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0; };
  const auto is_letter = [&](std::size_t at) {
    return at < text.size() && std::isalpha(static_cast<unsigned char>(text[at])) != 0;
  };
  /// The number of digits from a place on, or before it.
  const auto digits_from = [&](std::size_t at) {
    std::size_t count = 0;
    while (is_digit(at + count)) {
      ++count;
    }
    return count;
  };
  const auto digits_before = [&](std::size_t at) {
    std::size_t count = 0;
    while (count < at && is_digit(at - count - 1)) {
      ++count;
    }
    return count;
  };
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::string_view before = text.substr(0, at);
    const std::string_view after = text.substr(at + 1);
    bool within = false;
    if (text[at] == ' ' && at > 0 && is_digit(at - 1)) {
      const std::size_t ahead = digits_before(at);
      const bool whole = ahead <= 3 &&
                         (ahead == at || std::string_view(".,-x").find(text[at - ahead - 1]) == std::string_view::npos);
      within = (whole && digits_from(at + 1) == 3 && !is_letter(at + 4)) || after.starts_with("· ") || after.starts_with("× ") ||
               std::any_of(units.begin(), units.end(),
                           [&](std::string_view unit) { return after.starts_with(unit) && !is_letter(at + 1 + unit.size()); });
    } else if (text[at] == ' ' && (before.ends_with(" ·") || before.ends_with(" ×"))) {
      within = is_digit(at + 1);
    }
    out += within ? "\u00a0" : std::string(1, text[at]);
  }
  return out;
}

std::string latex_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    bool found = false;
    for (const auto& [sign, written] : latex_signs) {
      if (text.starts_with(sign)) {
        out += written;
        text.remove_prefix(sign.size());
        found = true;
        break;
      }
    }
    if (!found) {
      // Two bytes are Latin letters, as in names, which pdflatex reads; it would stop at longer ones, and at bytes that are not
      // UTF-8.
      const std::size_t length = sign_length(text);
      out += length == 1 || length == 2 ? text.substr(0, length) : "?";
      text.remove_prefix(std::max<std::size_t>(1, length));
    }
  }
  return out;
}

}  // namespace baton::sheet
