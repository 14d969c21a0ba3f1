#include "baton/sheet/escape.h"

#include <array>
#include <utility>

namespace baton::sheet {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 38> latex_signs{{
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
}};

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
      // Two bytes are Latin letters, as in names, which pdflatex reads; what is longer it would stop at.
      const auto lead = static_cast<unsigned char>(text[0]);
      const std::size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
      out += length <= 2 ? text.substr(0, length) : "?";
      text.remove_prefix(std::min(length, text.size()));
    }
  }
  return out;
}

}  // namespace baton::sheet
