#include "baton/sheet/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "baton/base/text.h"
#include "baton/sheet/escape.h"

namespace baton::sheet {
namespace {

template <typename... Visits>
struct Overloaded : Visits... {
  using Visits::operator()...;
};
template <typename... Visits>
Overloaded(Visits...) -> Overloaded<Visits...>;

// ------------------------------------------------------------------------------------------- Markdown

/// Signs that would begin a tag, as in the name of a device, stay text; `…` marks code, in which nothing does.
std::string markdown_words(std::string_view text) {
  return with_code(
      text, [](std::string_view code) { return "`" + std::string(code) + "`"; },
      [](std::string_view plain) {
        std::string out;
        for (std::size_t at = 0; at < plain.size(); ++at) {
          const char next = at + 1 < plain.size() ? plain[at + 1] : ' ';
          const bool begins_tag = plain[at] == '<' && (std::isalpha(static_cast<unsigned char>(next)) != 0 || next == '/' ||
                                                       next == '!' || next == '?');
          out += begins_tag ? "&lt;" : std::string(1, plain[at]);
        }
        return out;
      });
}

std::string markdown_cell(const std::string& text) {
  std::string out;
  for (const char c : markdown_words(text)) {
    out += c == '|' ? "\\|" : c == '\n' ? "<br>" : std::string(1, c);
  }
  return out;
}

std::string markdown_grid(const DataTable& grid) {
  std::string out = grid.caption.empty() ? "" : "**" + markdown_words(grid.caption) + "**\n\n";
  const auto line = [&](const std::vector<std::string>& cells) {
    for (const std::string& text : cells) {
      out += "| " + markdown_cell(text) + " ";
    }
    out += "|\n";
  };
  line(grid.heading);
  for (std::size_t c = 0; c < grid.heading.size(); ++c) {
    out += grid.text[c] ? "|---" : "|---:";
  }
  out += "|\n";
  for (const auto& row : grid.rows) {
    line(row);
  }
  return out + "\n";
}

/// The indentation of the rest of a line of code that is too long.
constexpr std::size_t wrapped_by = 4;
/// The columns of a table next to which a picture still fits on a page.
constexpr std::size_t most_columns_beside_a_picture = 6;

// ---------------------------------------------------------------------------------------------- LaTeX

std::string latex_words(std::string_view text) {
  return with_code(
      text, [](std::string_view code) { return "\\texttt{" + latex_text(code) + "}"; },
      [](std::string_view plain) { return latex_text(unbroken(plain)); });
}

/// Code whose lines fit on the page, broken where `html_code` breaks them.
std::string latex_code(std::string_view code) {
  constexpr std::size_t columns = 98;  // characters of a small typewriter font in 170 mm
  std::string out;
  for (std::string_view line : split(code.substr(0, code.find_last_not_of('\n') + 1), '\n')) {
    const std::string further(std::min(line.find_first_not_of(' '), line.size()) + wrapped_by, ' ');
    std::size_t room = columns;
    std::size_t least = further.size();  // a line must not be cut within its own indentation
    while (line.size() > room) {
      const std::size_t space = line.rfind(' ', room);
      const std::size_t cut = space == std::string_view::npos || space < least ? room : space;
      out.append(line.substr(0, cut)).append("\n").append(further);
      line.remove_prefix(line[cut] == ' ' ? cut + 1 : cut);
      room = columns - std::min(further.size(), columns / 2);
      least = 0;
    }
    out.append(line).append("\n");
  }
  return out;
}

std::string latex_grid(const DataTable& grid) {
  std::string columns;
  for (const bool text : grid.text) {
    columns += text ? 'l' : 'r';
  }
  std::string out = "\\begin{center}\\small\n";
  if (!grid.caption.empty()) {
    out += "\\textbf{" + latex_words(grid.caption) + "}\\\\[2pt]\n";
  }
  out += "\\begin{tabular}{" + columns + "}\n\\hline\n";
  const auto line = [&](const std::vector<std::string>& cells) {
    for (std::size_t c = 0; c < cells.size(); ++c) {
      out += (c == 0 ? "" : " & ") + latex_words(cells[c]);
    }
    out += " \\\\\n";
  };
  line(grid.heading);
  out += "\\hline\n";
  for (const auto& row : grid.rows) {
    line(row);
  }
  return out + "\\hline\n\\end{tabular}\n\\end{center}\n\n";
}

// ----------------------------------------------------------------------------------------------- HTML

std::string html_words(std::string_view text) {
  std::string out = with_code(
      text, [](std::string_view code) { return "<code>" + html_text(code) + "</code>"; },
      [](std::string_view plain) { return html_text(unbroken(plain)); });
  for (std::size_t at = out.find('\n'); at != std::string::npos; at = out.find('\n', at + 5)) {
    out.replace(at, 1, "<br>\n");
  }
  return out;
}

/// Code of which a line that is too long continues below, further in than it begins: as no line of the code would.
std::string html_code(std::string_view code) {
  std::string out = "<pre>";
  for (const std::string_view line : split(code.substr(0, code.find_last_not_of('\n') + 1), '\n')) {
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size()) + wrapped_by;
    out += fmt::format("<span class=\"line\" style=\"padding-left:{0}ch;text-indent:-{0}ch\">{1}\n</span>", indent,
                       html_text(line));
  }
  return out + "</pre>\n";
}

std::string html_grid(const DataTable& grid) {
  std::string out = "<table>";
  if (!grid.caption.empty()) {
    out += "<caption>" + html_words(grid.caption) + "</caption>";
  }
  const auto line = [&](const std::vector<std::string>& cells, const char* tag) {
    out += "<tr>";
    for (std::size_t c = 0; c < cells.size(); ++c) {
      out += fmt::format("<{0}{1}>{2}</{0}>", tag, grid.text[c] ? " class=\"text\"" : "", html_words(cells[c]));
    }
    out += "</tr>\n";
  };
  out += "<thead>";
  line(grid.heading, "th");
  out += "</thead><tbody>";
  for (const auto& row : grid.rows) {
    line(row, "td");
  }
  return out + "</tbody></table>\n";
}

/// The first table or picture of a section that comes before its questions; the number of its blocks if there is none.
std::size_t first_figure_of(const Section& section) {
  for (std::size_t b = 0; b < section.blocks.size() && !std::holds_alternative<Asked>(section.blocks[b]); ++b) {
    if (std::holds_alternative<Grids>(section.blocks[b]) || std::holds_alternative<Pictures>(section.blocks[b])) {
      return b;
    }
  }
  return section.blocks.size();
}

constexpr const char* style = R"(
@page { size: A4; margin: 16mm 17mm 17mm; @bottom-center { content: counter(page) " / " counter(pages); font: 9pt sans-serif; } }
* { box-sizing: border-box; }
body { font: 9.8pt/1.33 "Helvetica Neue", Helvetica, Arial, sans-serif; color: #111; max-width: 176mm; margin: 8mm auto; }
h1 { font-size: 16pt; margin: 0 0 1mm; }
h2 { font-size: 12pt; margin: 4mm 0 1mm; border-bottom: 0.5pt solid #888; break-after: avoid; }
p { margin: 0 0 1.6mm; }
.who { color: #333; margin-bottom: 2mm; }
.small { font-size: 8.8pt; color: #333; break-after: avoid; }
.note { font-size: 9pt; border-left: 2pt solid #1f5799; padding-left: 2mm; }
.question { font-weight: 600; margin: 2mm 0 0.5mm; break-after: avoid; }
.beside { color: #333; font-size: 9pt; padding-left: 4mm; }
code, pre { font-family: "DejaVu Sans Mono", Menlo, monospace; font-size: 8.2pt; overflow-wrap: anywhere; }
.line { display: block; }
pre { background: #f4f4f4; padding: 1.5mm; margin: 1mm 0 2mm; white-space: pre-wrap; break-inside: avoid; }
table { break-inside: avoid; border-collapse: collapse; font-size: 8.8pt; margin: 1.5mm auto 2mm; font-variant-numeric: tabular-nums; }
caption { font-weight: 600; text-align: left; padding-bottom: 0.5mm; }
th, td { padding: 0.4mm 1.4mm; text-align: right; vertical-align: top; }
th { border-bottom: 0.7pt solid #444; border-top: 0.7pt solid #444; font-weight: 600; }
.text { text-align: left; }
tr { break-inside: avoid; }
tbody tr:first-child td { padding-top: 1mm; }
tbody tr:last-child td { border-bottom: 0.7pt solid #444; }
.figures { display: flex; flex-wrap: wrap; gap: 0 5mm; justify-content: space-evenly; align-items: center; margin: 1mm 0; }
.whole { break-inside: avoid; }
.ahead { break-after: avoid; }
.stack { display: flex; flex-direction: column; }
.figures table { margin: 1mm 0; }
.figures table:not(:only-of-type) { width: min-content; }
.figures svg { margin: 1mm 0; break-inside: avoid; }
td { white-space: nowrap; }
svg { flex: none; }
.contents { columns: 2; font-size: 9.2pt; margin: 2mm 0; padding: 0; list-style: none; }
.contents a { color: inherit; text-decoration: none; display: flex; justify-content: space-between; }
@media print { body { margin: 0; max-width: none; } }
)";

}  // namespace

std::size_t words_in(std::string_view text) {
  std::size_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool space = std::isspace(static_cast<unsigned char>(c)) != 0;
    words += !space && !inside ? 1 : 0;
    inside = !space;
  }
  return words;
}

std::string to_markdown(const Document& document, std::map<std::string, std::string>& files) {
  std::string out = fmt::format("# {}\n\n{}{}{}\n\n", markdown_words(document.title), markdown_text(document.name),
                                document.name.empty() ? "" : ", ", document.date);
  for (const Paragraph& note : document.notes) {
    out += "> " + markdown_words(note.text) + "\n\n";
  }
  std::size_t pictures = 0;
  for (const Section& section : document.sections) {
    out += fmt::format("## {}\n\n", markdown_words(section.heading));
    for (const Block& block : section.blocks) {
      std::visit(Overloaded{[&](const Paragraph& paragraph) { out += markdown_words(paragraph.text) + "\n\n"; },
                            [&](const Asked& asked) {
                              out += fmt::format("**{}: {}**\n\n{}\n\n", asked.label, markdown_words(asked.question),
                                                 markdown_words(asked.answer));
                              out += asked.beside.empty() ? "" : "> " + markdown_words(asked.beside) + "\n\n";
                            },
                            [&](const Grids& grids) {
                              for (const DataTable& grid : grids.row) {
                                out += markdown_grid(grid);
                              }
                            },
                            [&](const Pictures& row) {
                              for (const Picture& picture : row.row) {
                                const std::string file = fmt::format("picture-{}.svg", ++pictures);
                                files[file] = to_svg(picture);
                                out += fmt::format("![{}]({})\n", markdown_words(picture.title), file);
                              }
                              out += "\n";
                            },
                            [&](const Listing& listing) {
                              out += (listing.caption.empty() ? "" : markdown_words(listing.caption) + "\n\n") + "```\n" +
                                     listing.code + "```\n\n";
                            }},
                 block);
    }
  }
  return out;
}

std::string to_latex(const Document& document) {
  std::string out =
      "\\documentclass[a4paper,10pt]{article}\n\\usepackage[utf8]{inputenc}\n\\usepackage{color}\n"
      "\\setlength{\\parindent}{0pt}\\setlength{\\parskip}{3pt}\n\\setlength{\\textwidth}{170mm}\\setlength{\\oddsidemargin}{-5mm}"
      "\n"
      "\\setlength{\\textheight}{250mm}\\setlength{\\topmargin}{-18mm}\n\\sloppy\n";
  out += fmt::format("\\title{{{}}}\n\\author{{{}}}\n\\date{{{}}}\n\\begin{{document}}\n\\maketitle\n", latex_words(document.title),
                     latex_text(document.name), latex_words(document.date));
  if (document.sections.size() > 4) {
    out += "\\tableofcontents\n";
  }
  for (const Paragraph& note : document.notes) {
    out += "\\textit{" + latex_words(note.text) + "}\n\n";
  }
  for (const Section& section : document.sections) {
    out += fmt::format("\\section*{{{0}}}\n\\addcontentsline{{toc}}{{section}}{{{0}}}\n", latex_words(section.heading));
    for (const Block& block : section.blocks) {
      std::visit(Overloaded{[&](const Paragraph& paragraph) {
                              out += paragraph.small ? "{\\small " + latex_words(paragraph.text) + "}\n\n"
                                                     : latex_words(paragraph.text) + "\n\n";
                            },
                            [&](const Asked& asked) {
                              out += fmt::format("\\textbf{{{}: {}}}\\\\\n{}\n\n", latex_words(asked.label),
                                                 latex_words(asked.question), latex_words(asked.answer));
                              out += asked.beside.empty() ? "" : "{\\small " + latex_words(asked.beside) + "}\n\n";
                            },
                            [&](const Grids& grids) {
                              for (const DataTable& grid : grids.row) {
                                out += latex_grid(grid);
                              }
                            },
                            [&](const Pictures& row) {
                              out += "\\begin{center}\n";
                              for (const Picture& picture : row.row) {
                                out += to_latex(picture) + "\n";
                              }
                              out += "\\end{center}\n\n";
                            },
                            [&](const Listing& listing) {
                              out += (listing.caption.empty() ? "" : latex_words(listing.caption) + "\n") +
                                     "{\\small\\begin{verbatim}\n" + latex_code(listing.code) + "\\end{verbatim}}\n\n";
                            }},
                 block);
    }
  }
  return out + "\\end{document}\n";
}

namespace {

/// The table of contents: the page on which each section begins. Without numbers of pages it has invisible links: they make
/// Chromium write where the sections are.
std::string html_contents(const Document& document, const std::vector<int>& pages) {
  std::string out;
  if (pages.size() != document.sections.size() || pages.empty()) {
    for (std::size_t s = 0; s < document.sections.size(); ++s) {
      out += fmt::format("<a href=\"#section-{}\"></a>", s);
    }
    return out;
  }
  for (std::size_t s = 0; s < document.sections.size(); ++s) {
    out += fmt::format("<li><a href=\"#section-{}\"><span>{}</span><span>{}</span></a></li>\n", s,
                       html_words(document.sections[s].heading), pages[s]);
  }
  return "<ul class=\"contents\">\n" + out + "</ul>\n";
}

/// A section, block by block.
class HtmlSection {
 public:
  HtmlSection(const Section& section, std::size_t number)
      : section_(section), first_figure_(first_figure_of(section)), together_(first_figure_ < section.blocks.size()) {
    const auto* first = together_ ? std::get_if<Grids>(&section.blocks[first_figure_]) : nullptr;
    ahead_ = first != nullptr && first->row.size() > 1;
    out_ += !together_ ? "" : ahead_ ? "<div class=\"whole ahead\">\n" : "<div class=\"whole\">\n";
    out_ += fmt::format("<h2 id=\"section-{}\">{}</h2>\n", number, html_words(section.heading));
  }

  std::string text() {
    for (std::size_t b = 0; b < section_.blocks.size(); ++b) {
      // If there are several tables it stays with the first: all of them and their pictures would leave too much of a page empty.
      if (b == first_figure_ && ahead_) {
        end_together();
      }
      next_ = b + 1 < section_.blocks.size() ? std::get_if<Pictures>(&section_.blocks[b + 1]) : nullptr;
      std::visit([&](const auto& block) { add(block); }, section_.blocks[b]);
      if (b >= first_figure_ && !figures_) {
        end_together();
      }
    }
    return out_;
  }

 private:
  void end_together() {
    out_ += together_ ? "</div>\n" : "";
    together_ = false;
  }

  void add(const Paragraph& paragraph) {
    out_ += fmt::format("<p{}>{}</p>\n", paragraph.small ? " class=\"small\"" : "", html_words(paragraph.text));
  }

  void add(const Asked& asked) {
    out_ += fmt::format("<p class=\"question\">{}: {}</p>\n<p>{}</p>\n", html_words(asked.label), html_words(asked.question),
                        html_words(asked.answer));
    if (!asked.beside.empty()) {
      out_ += "<p class=\"beside\">" + html_words(asked.beside) + "</p>\n";
    }
  }

  void add(const Grids& grids) {
    tall_ = !grids.row.empty() && grids.row.size() == 1 && grids.row[0].rows.size() > 8;
    // No picture fits next to a wide table, so a page may end between the two.
    const bool wide = grids.row.size() == 1 && grids.row[0].heading.size() > most_columns_beside_a_picture;
    figures_ = next_ != nullptr && !wide && (tall_ || next_->row.size() == 1);
    // Chromium tears a picture of such a row over two pages unless all of it stays on one.
    out_ += figures_ && grids.row.size() == 1 ? "<div class=\"figures whole\">\n" : "<div class=\"figures\">\n";
    for (const DataTable& grid : grids.row) {
      out_ += html_grid(grid);
    }
    out_ += figures_ ? "" : "</div>\n";
  }

  void add(const Pictures& pictures) {
    const bool stack = pictures.row.size() > 1 && tall_;
    out_ += figures_ ? "" : "<div class=\"figures whole\">\n";
    figures_ = false;
    out_ += stack ? "<div class=\"stack\">\n" : "";
    for (const Picture& picture : pictures.row) {
      out_ += to_svg(picture);
    }
    out_ += stack ? "</div>\n</div>\n" : "</div>\n";
  }

  void add(const Listing& listing) {
    out_ += listing.caption.empty() ? "" : "<p>" + html_words(listing.caption) + "</p>\n";
    out_ += html_code(listing.code);
  }

  const Section& section_;
  std::size_t first_figure_;
  bool together_;                   // a heading stays with all that comes before the first table or picture, and with that
  bool ahead_ = false;              // true before several tables in a row
  bool tall_ = false;               // true if a table is so tall that two pictures lie next to it one above the other
  bool figures_ = false;            // tables, and the pictures that follow them, lie next to each other where there is room
  const Pictures* next_ = nullptr;  // the block after this one, if it is pictures
  std::string out_;
};

}  // namespace

std::string to_html(const Document& document, const std::vector<int>& pages) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta "
      "charset=\"utf-8\">\n<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n"
      "<h1>{}</h1>\n<p class=\"who\">{}{}{}</p>\n",
      html_text(document.title), style, html_text(document.title), html_text(document.name), document.name.empty() ? "" : ", ",
      html_text(document.date));
  out += html_contents(document, pages);
  for (const Paragraph& note : document.notes) {
    out += "<p class=\"note\">" + html_words(note.text) + "</p>\n";
  }
  for (std::size_t s = 0; s < document.sections.size(); ++s) {
    out += HtmlSection(document.sections[s], s).text();
  }
  return out + "</body>\n</html>\n";
}

namespace {

bool is_page(std::string_view object) {
  const std::size_t at = object.find("/Type /Page");
  return at != std::string_view::npos && object.substr(at + 11, 1) != "s";
}

/// The object numbers of a PDF's pages in order, from the list of its tree's children; Chromium writes them in the clear.
std::vector<int> page_objects(std::string_view pdf) {
  std::vector<int> pages;
  for (std::size_t at = pdf.find("/Kids"); at != std::string_view::npos; at = pdf.find("/Kids", at + 1)) {
    const std::size_t begin = pdf.find('[', at);
    const std::size_t end = pdf.find(']', at);
    if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) {
      break;
    }
    std::vector<int> children;
    for (const std::string_view word : split(pdf.substr(begin + 1, end - begin - 1), 'R')) {
      if (const int number = std::atoi(std::string(word).c_str()); number > 0) {
        children.push_back(number);
      }
    }
    // Other trees have children too, and inner nodes of this one are not pages.
    for (const int child : children) {
      const std::string object = fmt::format("\n{} 0 obj", child);
      const std::size_t place = pdf.find(object);
      const std::string_view body = place == std::string_view::npos ? "" : pdf.substr(place, pdf.find("endobj", place) - place);
      if (is_page(body)) {
        pages.push_back(child);
      }
    }
  }
  return pages;
}

}  // namespace

int page_count(std::string_view pdf) { return static_cast<int>(page_objects(pdf).size()); }

std::vector<int> pages_of_sections(std::string_view pdf, std::size_t sections) {
  const std::vector<int> pages = page_objects(pdf);
  std::vector<int> found;
  for (std::size_t s = 0; s < sections; ++s) {
    const std::string name = fmt::format("/section-{} [", s);
    const std::size_t at = pdf.find(name);
    if (at == std::string_view::npos) {
      return {};
    }
    const int object = std::atoi(std::string(pdf.substr(at + name.size(), 12)).c_str());
    const auto page = std::find(pages.begin(), pages.end(), object);
    if (page == pages.end()) {
      return {};
    }
    found.push_back(static_cast<int>(page - pages.begin()) + 1);
  }
  return found;
}

}  // namespace baton::sheet
