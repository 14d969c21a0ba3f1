#include "docs/wording.h"

#include <algorithm>
#include <cctype>
#include <regex>

namespace baton::test {
namespace {

struct Phrase {
  std::regex pattern;
  std::string instead;
};

/// An amount, then "a" where "per" belongs, then the unit that it is counted by. "the work a device does" is a clause: text with a
/// verb after it does not match.
std::string amount_per() {
  const std::string amount =
      "([0-9][0-9.,]*( "
      "(%|[kmgt]?i?b(/s)?|gt/s|[nm]?s|µs|[kmgt]?flop(/s)?))?|one|two|three|four|half|once|twice|times|more|lines?|rows?|"
      "threads?|streams?|tasks?|bytes|flops?|samples|stages?|blocks|cores?|ports?|products?|(milli|micro|nano)?seconds?|megabits|"
      "steps|processe?s?|devices?|"
      "sums?|"
      "calls?|cop(y|ies)|messages?|transfers?|waiting|sentence|file|test|values?|weights|gradients|buffers?|events?|records?|"
      "exchange)";
  const std::string counted =
      "(step|device|rank|stage|replica|task|core|node|second|sample|flop|layer|block|matrix|row|member|message|collective|element|"
      "parameter|micro-batch|host|process|point|line|byte|nanosecond|millisecond|round|gpu|op|link|product|bucket|pair|minute|hour|"
      "run|"
      "thread|column|file|experiment|strategy|folder|lane|command|machine|meeting)";
  const std::string verb =
      "(takes?|has|have|does|holds?|needs?|runs?|computes?|sends?|is|was|of|could|can|may|must|would|will|that|which|gives|reads|"
      "writes|works|spends|waits|costs|owns|receives|gets|comes|lasts|sees|moves|lies)";
  return "\\b" + amount + " an? " + counted + "\\b(?! " + verb + "\\b)";
}

const std::vector<Phrase>& phrases() {
  static const std::vector<Phrase> list = [] {
    const std::vector<std::pair<std::string, std::string>> texts{
        {amount_per(), "per"},
        {"\\bAgain:", "Reproduce with:"},
        {"\\blets? go\\b", "free, freed"},
        {"\\banew\\b|\\bafresh\\b", "again"},
        {"\\b(held|holds?|holding)\\b[^.;:]{0,60}? against\\b", "compare with"},
        {"\\b(none|nothing|empty) where\\b|\\bwhere (there|it|that|they|this) (is|are|was) "
         "(none|nothing|no|not|null|missing)\\b|\\bwhat is none\\b",
         "if there is no X"},
        {"\\b(there )?(is|are) no (?!(longer|more|less|better|faster|slower|larger|smaller|farther|further|other|such)\\b)[a-z]+",
         "is not a"},
        {"\\b(the|its|their|a|plan's) laws?\\b", "rules (of a plan or shape), formula or model (of times)"},
        {"\\bGF/s|\\b[MGT]flop/s|\\b[GT]flops\\b", "GFLOP/s, TFLOP/s"},
        {"[0-9] us\\b|\\(us\\)", "µs"},
        {"\\bbehind (the|those|these|this|that|two|three|one|their|its|it|what|each|an?|them|all)\\b", "after"},
        {"\\bso many\\b", "N, or this many"},
        {"\\b(of one's|one's own)\\b|\\bfor real\\b", "your own; not simulated"},
        {"\\b(go|goes|going|went|gone) on (from|with|as|where|in)\\b", "continue"},
        {"\\b(let go|made|computed) again in the backward\\b", "recomputed"},
        {"\\bstands? (above|below|there|here|beside|by itself)\\b|\\bstands in (one|its|a|the) (file|folder|header)", "is"},
        {"\\bjudge of\\b|\\bslip of the pen\\b|\\blie down\\b|\\bastray\\b|\\bdear(er|est)\\b", "the word of the field"},
        {"\\bcomes? by itself\\b|\\bnothing hid(es)?\\b|\\bkept apart\\b|\\bclock on the wall\\b|\\bin times of\\b", "plain words"},
        {"\\bwho(ever)? (saves|ends|waits|comes|asks|hangs|hung|computes|starts)\\b", "the rank that, the device that"},
        {"\\btells? of\\b|\\bsays? what is\\b", "reports"},
        {"\\bwork(s|ed|ing) off\\b|\\bput off\\b", "run, split into; postpone"},
        {"\\bwhoever\\b", "the rank that, code that"},
        {"\\b(even|evenly|little|few|light) as can be\\b", "as possible"},
        {"\\b(in|on) the mean\\b", "on average"},
        {"\\bOf (a|an|the|those|several|each|every|few)\\b[^.]{0,60}[:,]", "the thing first: 'the time of a pipeline'"},
        {"\\bas [^.,;:]{1,30} ha(s|ve) (it|them)\\b", "as in X, like X's"},
        {"\\bin no time\\b|\\bnone included\\b|\\bwhere one belongs\\b", "plain words"},
        {"\\bbeside (every|each|any|all|no|other|more|its|their|the|those|that|these|what|them|it|one|another)\\b",
         "next to, compared with, in addition to, while ... runs"},
    };
    std::vector<Phrase> compiled;
    for (const auto& [pattern, instead] : texts) {
      // A pattern without capitals finds its phrase at the beginning of a sentence too.
      const bool capitals = std::any_of(pattern.begin(), pattern.end(), [](unsigned char sign) { return std::isupper(sign) != 0; });
      compiled.push_back(
          {std::regex(pattern, capitals ? std::regex::ECMAScript : std::regex::ECMAScript | std::regex::icase), instead});
    }
    return compiled;
  }();
  return list;
}

/// The text with blanks in place of C++ code and of ends of lines, as long as before.
std::string flattened(std::string text) {
  for (std::size_t begin = text.find("```cpp"); begin != std::string::npos; begin = text.find("```cpp", begin)) {
    const std::size_t end = std::min(text.find("\n```", begin), text.size());
    std::fill(text.begin() + static_cast<std::ptrdiff_t>(begin), text.begin() + static_cast<std::ptrdiff_t>(end), ' ');
    begin = end;
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

std::vector<Wording> unclear(const std::string& text) {
  // A paragraph at a time: the patterns' matcher goes deeper with the length of what it looks at.
  std::vector<Wording> all;
  std::string code_free = flattened(text);
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find("\n\n", begin), text.size());
    const std::string paragraph = code_free.substr(begin, end - begin);
    for (const Phrase& phrase : phrases()) {
      for (std::sregex_iterator next(paragraph.begin(), paragraph.end(), phrase.pattern), none; next != none; ++next) {
        const std::string found = (*next)[0];
        if (found.starts_with("there ") || found.starts_with("There ")) {  // "there is no X" is plain
          continue;
        }
        const auto at = text.begin() + static_cast<std::ptrdiff_t>(begin) + next->position();
        all.push_back({1 + static_cast<int>(std::count(text.begin(), at, '\n')), found, phrase.instead});
      }
    }
    begin = end + 2;
  }
  return all;
}

}  // namespace baton::test
