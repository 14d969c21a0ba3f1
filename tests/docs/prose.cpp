#include "docs/prose.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <utility>

#include "support/contents.h"

namespace baton::test {
namespace {

enum class Language { c, script, style, page, hashed, cmake, shell };

/// By extension, or by the whole name.
const std::map<std::string, Language>& languages() {
  static const std::map<std::string, Language> list{
      {".h", Language::c},       {".cpp", Language::c},       {".cu", Language::c},        {".cuh", Language::c},
      {".js", Language::script}, {".mjs", Language::script},  {".css", Language::style},   {".html", Language::page},
      {".py", Language::hashed}, {".toml", Language::hashed}, {".cmake", Language::cmake}, {"CMakeLists.txt", Language::cmake},
      {".sh", Language::shell},  {"baton", Language::shell}};
  return list;
}

std::map<std::string, Language>::const_iterator find_language(const std::filesystem::path& file) {
  const auto by_name = languages().find(file.filename());
  return by_name != languages().end() ? by_name : languages().find(file.extension());
}

std::ptrdiff_t words(const std::string& text) {
  std::istringstream stream(text);
  return std::distance(std::istream_iterator<std::string>(stream), {});
}

/// Walks over a file once. Of code only the ends of lines stay.
class Reader {
 public:
  Reader(const std::string& code, Language language) : code_(code), language_(language) {}

  Prose read() {
    while (at_ < code_.size()) {
      if (is_comment("//", is_one_of(Language::c, Language::script)) ||
          is_comment("#", is_one_of(Language::hashed, Language::cmake)) || is_comment("#", begins_word_of_shell())) {
        take_comment(code_.find('\n', at_));
      } else if (is_comment("/*", is_one_of(Language::c, Language::script) || language_ == Language::style)) {
        take_comment(code_.find("*/", at_ + 2));
      } else if (is_character()) {
        at_ = code_[at_ + 1] == '\\' ? code_.find('\'', at_ + 3) + 1 : at_ + 3;
        end_literal();
      } else if (is_one_of(Language::cmake, Language::shell) && code_[at_] == '\\') {
        at_ += code_.compare(at_, 2, "\\\n") == 0 ? 1 : 2;
      } else if (language_ == Language::shell && code_.compare(at_, 2, "<<") == 0) {
        note_document();
      } else if (const std::string end = end_of_literal(); !end.empty()) {
        take_literal(end);
      } else {
        take_code();
      }
    }
    end_literal();
    return prose_;
  }

 private:
  bool is_one_of(Language a, Language b) const { return language_ == a || language_ == b; }

  bool begins_word_of_shell() const {
    return language_ == Language::shell && (at_ == 0 || std::isspace(static_cast<unsigned char>(code_[at_ - 1])) != 0);
  }

  bool is_comment(const char* sign, bool has_sign) const {
    return has_sign && code_.compare(at_, std::string(sign).size(), sign) == 0;
  }

  bool is_character() const {
    return language_ == Language::c && code_[at_] == '\'' && at_ + 2 < code_.size() &&
           (code_[at_ + 2] == '\'' || code_[at_ + 1] == '\\');
  }

  /// What ends the literal that begins here, moving past its beginning; empty if none does.
  std::string end_of_literal() {
    if (language_ == Language::c && code_.compare(at_, 2, "R\"") == 0) {
      const std::size_t bracket = code_.find('(', at_);
      const std::string end = ")" + code_.substr(at_ + 2, bracket - at_ - 2) + "\"";
      at_ = bracket + 1;
      return end;
    }
    if (language_ == Language::hashed && code_.compare(at_, 3, "\"\"\"") == 0) {
      at_ += 3;
      return "\"\"\"";
    }
    const char sign = code_[at_];
    if (sign == '"' || (sign == '\'' && !is_one_of(Language::c, Language::cmake)) ||
        (sign == '`' && language_ == Language::script)) {
      ++at_;
      return std::string(1, sign);
    }
    return {};
  }

  /// Moves past the `<<WORD` of the shell, after whose line a text follows up to a line that is that word.
  void note_document() {
    static const std::regex word("^<<-?[\"']?([A-Z]+)");
    std::smatch found;
    const std::string rest = code_.substr(at_, 40);
    if (std::regex_search(rest, found, word)) {
      document_end_ = "\n" + found[1].str() + "\n";
    }
    at_ += code_.compare(at_, 3, "<<<") == 0 ? 3 : std::max<std::size_t>(2, static_cast<std::size_t>(found.length()));
    at_ += at_ < code_.size() && !document_end_.empty() && (code_[at_] == '\'' || code_[at_] == '"') ? 1 : 0;
  }

  void take_comment(std::size_t end) {
    end = std::min(end, code_.size());
    std::size_t begin = at_;
    while (begin < end && (code_[begin] == '/' || code_[begin] == '#' || code_[begin] == '*')) {
      ++begin;
    }
    prose_.comments.append(code_, begin, end - begin);
    add_lines(
        std::count(code_.begin() + static_cast<std::ptrdiff_t>(begin), code_.begin() + static_cast<std::ptrdiff_t>(end), '\n'),
        pending_);
    at_ = end;
  }

  void take_literal(const std::string& end) {
    const bool long_one = end.size() > 1 || end == "`" || is_one_of(Language::cmake, Language::shell);
    const bool has_escapes = end.front() != ')' && end.front() != '\n' && (language_ != Language::shell || end == "\"");
    open_ = true;
    while (at_ < code_.size() && code_.compare(at_, end.size(), end) != 0 && (long_one || code_[at_] != '\n')) {
      if (code_[at_] == '\n') {
        prose_.comments += '\n';
        pending_ += '\n';
      } else if (code_[at_] == '\\' && has_escapes) {
        ++at_;
        prose_.comments += code_.compare(at_, 1, "\n") == 0 ? "\n" : "";
        pending_ += at_ < code_.size() && code_[at_] == 'n' ? ' ' : code_[std::min(at_, code_.size() - 1)];
      } else {
        pending_ += code_[at_];
      }
      ++at_;
    }
    at_ += at_ < code_.size() && code_[at_] == '\n' && end.front() != '\n' ? 0 : end.size();
  }

  void take_code() {
    const char sign = code_[at_++];
    if (sign == '\n') {
      prose_.comments += '\n';
      pending_ += '\n';
      if (!document_end_.empty()) {
        take_literal(std::exchange(document_end_, {}));
        prose_.comments += "\n\n";
        pending_ += "\n\n";
        end_literal();
      }
    } else if (std::isspace(static_cast<unsigned char>(sign)) == 0 && open_) {
      end_literal();
    }
  }

  /// Long literals stay, with a bar after them: phrases do not run from one literal to the next.
  void end_literal() {
    if (words(pending_) >= 5) {
      prose_.literals += pending_ + "|";
    } else {
      add_lines(std::count(pending_.begin(), pending_.end(), '\n'), prose_.literals);
    }
    pending_.clear();
    open_ = false;
  }

  static void add_lines(std::ptrdiff_t count, std::string& text) { text.append(static_cast<std::size_t>(count), '\n'); }

  const std::string& code_;
  Language language_;
  std::size_t at_ = 0;
  std::string pending_;  // literals that are adjacent so far
  bool open_ = false;
  std::string document_end_;  // the text that ends the here-document that the line is in
  Prose prose_;
};

}  // namespace

bool has_prose(const std::filesystem::path& file) { return find_language(file) != languages().end(); }

Prose prose_of(const std::filesystem::path& file) {
  const Language language = find_language(file)->second;
  const std::string code = contents(file);
  return language == Language::page ? Prose{code, ""} : Reader(code, language).read();
}

}  // namespace baton::test
