#include "baton/sheet/escape.h"

#include <algorithm>
#include <array>
#include <utility>

namespace baton::sheet {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 39> latex_signs{{
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
}};

/// How many bytes the first sign of a text in UTF-8 has; 0 if it is not in UTF-8.
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
      // Two bytes are Latin letters, as in names, which pdflatex reads; what is longer, or is no UTF-8, it would stop at.
      const std::size_t length = sign_length(text);
      out += length == 1 || length == 2 ? text.substr(0, length) : "?";
      text.remove_prefix(std::max<std::size_t>(1, length));
    }
  }
  return out;
}

}  // namespace baton::sheet
