#include "baton/data/tokenizer_json.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>

namespace baton::data {
namespace {

using Json = nlohmann::json;

constexpr std::size_t most_depth = 32;
constexpr std::size_t longest_text = 1 << 16;
constexpr std::size_t most_entries = std::size_t{1} << 21;

/// A value that is neither object nor array.
struct Scalar {
  std::optional<std::string> text = {};
  std::optional<std::int64_t> integer = {};
  bool truth = false;  // `true`
  bool null = false;
};

/// Follows a text event by event, and knows where in it each stands: "/model/merges/#" is an entry of a list.
class Walker : public nlohmann::json_sax<Json> {
 public:
  const std::string& wrong() const { return wrong_; }

  bool null() override { return give({.null = true}); }
  bool boolean(bool value) override { return give({.truth = value}); }
  bool number_integer(number_integer_t value) override { return give({.integer = value}); }
  bool number_unsigned(number_unsigned_t value) override {
    return give({.integer = value > most_number ? most_number : static_cast<std::int64_t>(value)});
  }
  bool number_float(number_float_t, const string_t&) override { return give({}); }
  bool string(string_t& value) override {
    return value.size() > longest_text ? fail("it has a text that does not end") : give({.text = std::move(value)});
  }
  bool binary(binary_t&) override { return fail("it is not JSON"); }
  bool start_object(std::size_t) override { return enter(false); }
  bool start_array(std::size_t) override { return enter(true); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(string_t& name) override {
    key_ = std::move(name);
    return key_.size() <= longest_text || fail("it has a name that does not end");
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override { return fail("it is not JSON"); }

 protected:
  bool fail(std::string why) {
    wrong_ = std::move(why);
    return false;
  }
  /// A value in the object or list at `where`, under `key` in an object.
  virtual bool value(const std::string& where, const std::string& key, Scalar scalar) = 0;
  /// An object or a list begins or ends.
  virtual bool begin(const std::string&) { return true; }
  virtual bool end(const std::string&) { return true; }

 private:
  static constexpr std::int64_t most_number = std::int64_t{1} << 40;
  struct Frame {
    std::string path;
    bool list;
  };

  bool give(Scalar scalar) {
    if (frames_.empty()) {
      return fail("it is not an object");
    }
    return value(frames_.back().path, key_, std::move(scalar));
  }
  bool enter(bool list) {
    if (frames_.size() == most_depth) {
      return fail("it is nested too deeply");
    }
    std::string path = frames_.empty() ? "" : frames_.back().path + (frames_.back().list ? "/#" : "/" + key_);
    frames_.push_back({std::move(path), list});
    return begin(frames_.back().path);
  }
  bool leave() {
    const std::string path = std::move(frames_.back().path);
    frames_.pop_back();
    return end(path);
  }

  std::vector<Frame> frames_;
  std::string key_;
  std::string wrong_;
};

class VocabularyReader final : public Walker {
 public:
  explicit VocabularyReader(TokenizerListing& listing) : listing_(listing) {}

 protected:
  bool begin(const std::string& where) override { return where.empty() || fail("it is not a list of tokens with their numbers"); }
  bool value(const std::string& where, const std::string& key, Scalar scalar) override {
    if (!where.empty() || !scalar.integer) {
      return fail("it is not a list of tokens with their numbers");
    }
    listing_.vocabulary.emplace_back(key, *scalar.integer);
    return listing_.vocabulary.size() < most_entries || fail("it has too many tokens");
  }

 private:
  TokenizerListing& listing_;
};

/// One step of splitting a text into pieces.
struct Cutting {
  std::string type;
  std::string pattern;
  std::string behavior;
  bool invert = false;
  bool adds_blank = false;
  bool by_its_rule = true;  // ByteLevel's own, which is GPT-2's
};

/// One step of adding tokens to those of a text.
struct Adding {
  std::string type;
  std::vector<std::string> before;  // names of tokens
  std::vector<std::string> after;
  bool has_text = false;
};

/// The patterns that are known for splitting a text, as tokenizer.json has them: LLaMA 3's and Qwen 2's.
struct KnownPattern {
  std::string_view pattern;
  Splitting splitting;
};
constexpr std::array<KnownPattern, 3> known_patterns{
    {{R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", Splitting::gpt2},
     {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      Splitting::cl100k},
     {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      Splitting::qwen2}}};

class TokenizerReader final : public Walker {
 public:
  explicit TokenizerReader(TokenizerListing& listing) : listing_(listing) {}

  /// Called at the end: returns the setting that is not supported; empty if there is none.
  std::string settle() {
    if (!model_type_.empty() && model_type_ != "BPE") {
      return fmt::format("its model is {}, and only BPE is known", model_type_);
    }
    if (listing_.vocabulary.empty()) {
      return "it has no vocabulary";
    }
    if (!normalizer_.empty()) {
      return fmt::format("it normalizes texts ({}), which is not supported", normalizer_);
    }
    if (cuttings_.empty() || cuttings_.back().type != "ByteLevel") {
      return fmt::format("it cuts texts by {}, and only ByteLevel is known", cuttings_.empty() ? "nothing" : cuttings_.back().type);
    }
    if (std::string wrong = settle_addings(); !wrong.empty()) {
      return wrong;
    }
    const Cutting& last = cuttings_.back();
    if (last.adds_blank) {
      return "it adds a blank before texts, which is not supported";
    }
    if (cuttings_.size() == 1 && last.by_its_rule) {
      return "";
    }
    const Cutting& first = cuttings_.front();
    if (cuttings_.size() == 2 && !last.by_its_rule && first.type == "Split" && first.behavior == "Isolated" && !first.invert) {
      for (const KnownPattern& known : known_patterns) {
        if (first.pattern == known.pattern) {
          listing_.splitting = known.splitting;
          return "";
        }
      }
    }
    return "it cuts texts by a rule that is not supported";
  }

 protected:
  bool begin(const std::string& where) override {
    if (where == "/pre_tokenizer" || where == "/pre_tokenizer/pretokenizers/#") {
      cuttings_.emplace_back();
    } else if (where == "/pre_tokenizer/pretokenizers") {
      cuttings_.clear();  // the list of steps is not a step itself
    } else if (where == "/normalizer") {
      normalizer_ = "in a way that it does not name";
    } else if (where == "/model/merges/#") {
      halves_.clear();
    } else if (where == "/added_tokens/#") {
      added_ = {};
      strips_ = false;
    } else if (where == "/post_processor" || (where.starts_with("/post_processor/") && where.ends_with("/processors/#"))) {
      addings_.emplace_back();
    } else if (where.starts_with("/post_processor/") && where.ends_with("/single/#/Sequence")) {
      addings_.back().has_text = true;
    }
    return (cuttings_.size() <= most_depth || fail("it cuts texts in too many steps")) &&
           (addings_.size() <= most_depth || fail("it adds tokens in too many steps"));
  }

  bool end(const std::string& where) override {
    if (where == "/model/merges/#") {
      if (halves_.size() != 2) {
        return fail("it has a merge that is not of two tokens");
      }
      return merge(std::move(halves_[0]), std::move(halves_[1]));
    }
    if (where == "/added_tokens/#") {
      if (added_.text.empty() || added_.number < 0) {
        return fail("it has an added token without a text or a number");
      }
      if (!added_.special && strips_) {
        return fail(
            fmt::format("its added token {} depends on what is around it (lstrip, rstrip or single_word), which is not supported",
                        added_.text));
      }
      listing_.added.push_back(std::move(added_));
    }
    return listing_.added.size() < most_entries || fail("it has too many tokens");
  }

  bool value(const std::string& where, const std::string& key, Scalar scalar) override {
    if (where == "/model/vocab") {
      if (!scalar.integer) {
        return fail("its vocabulary has a token without a number");
      }
      listing_.vocabulary.emplace_back(key, *scalar.integer);
      return listing_.vocabulary.size() < most_entries || fail("it has too many tokens");
    }
    if (where == "/model/merges") {
      const std::size_t blank = scalar.text ? scalar.text->find(' ') : std::string::npos;
      if (blank == std::string::npos) {
        return fail("it has a merge that is not of two tokens");
      }
      return merge(scalar.text->substr(0, blank), scalar.text->substr(blank + 1));
    }
    if (where == "/model/merges/#") {
      halves_.push_back(scalar.text.value_or(""));
      return halves_.size() <= 2 || fail("it has a merge that is not of two tokens");
    }
    if (where == "/model") {
      return model_value(key, scalar);
    }
    if (where == "/normalizer" && key == "type") {
      normalizer_ = scalar.text.value_or("");
    } else if (where == "/added_tokens/#") {
      if (key == "id") {
        added_.number = scalar.integer.value_or(-1);
      } else if (key == "content") {
        added_.text = scalar.text.value_or("");
      } else if (key == "special") {
        added_.special = scalar.truth;
      } else if (key == "lstrip" || key == "rstrip" || key == "single_word") {
        strips_ = strips_ || scalar.truth;
      }
    } else if (where.starts_with("/post_processor") && !addings_.empty()) {
      return adding_value(where, key, scalar);
    } else if (where.starts_with("/pre_tokenizer") && !cuttings_.empty()) {
      cutting_value(where, key, scalar);
    }
    return true;
  }

 private:
  bool merge(std::string left, std::string right) {
    if (left.empty() || right.empty()) {
      return fail("it has a merge that is not of two tokens");
    }
    listing_.merges.emplace_back(std::move(left), std::move(right));
    return listing_.merges.size() < most_entries || fail("it has too many merges");
  }

  bool model_value(const std::string& key, const Scalar& scalar) {
    if (key == "type") {
      model_type_ = scalar.text.value_or("?");
    } else if (key == "ignore_merges") {
      listing_.whole_first = scalar.truth;
    } else if (key == "byte_fallback" && scalar.truth) {
      return fail("it falls back to bytes for unknown characters, which is not supported");
    } else if (key == "dropout" && !scalar.null) {
      return fail("it leaves out merges at random (dropout), which is not supported");
    } else if ((key == "continuing_subword_prefix" || key == "end_of_word_suffix") && !scalar.text.value_or("").empty()) {
      return fail(fmt::format("it has a {}, which is not supported", key));
    }
    return true;
  }

  void cutting_value(const std::string& where, const std::string& key, Scalar& scalar) {
    Cutting& step = cuttings_.back();
    if (where.ends_with("/pattern")) {
      step.pattern = key == "Regex" ? scalar.text.value_or("") : "";
    } else if (key == "type" && scalar.text != "Sequence") {  // which may stand after its steps
      step.type = scalar.text.value_or("?");
    } else if (key == "behavior") {
      step.behavior = scalar.text.value_or("");
    } else if (key == "invert") {
      step.invert = scalar.truth;
    } else if (key == "add_prefix_space") {
      step.adds_blank = scalar.truth;
    } else if (key == "use_regex") {
      step.by_its_rule = scalar.truth;
    }
  }

  bool adding_value(const std::string& where, const std::string& key, const Scalar& scalar) {
    constexpr std::size_t most_tokens = 64;
    Adding& step = addings_.back();
    if (key == "type" && (where == "/post_processor" || where.ends_with("/processors/#"))) {
      // A sequence may name its type after its steps.
      if (scalar.text != "Sequence") {
        step.type = scalar.text.value_or("?");
      }
    } else if (key == "id" && where.ends_with("/single/#/SpecialToken")) {
      std::vector<std::string>& list = step.has_text ? step.after : step.before;
      list.push_back(scalar.text.value_or(""));
      return list.size() <= most_tokens || fail("it adds too many tokens to a text");
    }
    return true;
  }

  /// Notes the tokens before a text; returns the addition that is not supported, empty if there is none.
  std::string settle_addings() {
    for (const Adding& step : addings_) {
      if (step.type.empty() || step.type == "ByteLevel") {  // it changes places in the text, not tokens
        continue;
      }
      if (step.type != "TemplateProcessing") {
        return fmt::format("it adds tokens by {}, and only TemplateProcessing is known", step.type);
      }
      if (!step.has_text || !step.after.empty()) {
        return fmt::format("its TemplateProcessing adds {} after a text, which is not supported",
                           step.after.empty() ? "tokens" : step.after.front());
      }
      listing_.before.insert(listing_.before.end(), step.before.begin(), step.before.end());
    }
    return "";
  }

  TokenizerListing& listing_;
  std::string model_type_;
  std::string normalizer_;  // empty: none
  std::vector<Cutting> cuttings_;
  std::vector<std::string> halves_;  // the two halves of the merge that is being read
  TokenizerListing::Added added_;
  bool strips_ = false;  // the added token that is being read takes something of what is around it
  std::vector<Adding> addings_;
};

}  // namespace

std::string parse_vocabulary(std::string_view text, TokenizerListing& listing) {
  VocabularyReader reader(listing);
  Json::sax_parse(text, &reader);
  return reader.wrong().empty() && listing.vocabulary.empty() ? "it has no tokens" : reader.wrong();
}

std::string parse_tokenizer_json(std::string_view text, TokenizerListing& listing) {
  TokenizerReader reader(listing);
  Json::sax_parse(text, &reader);
  return reader.wrong().empty() ? reader.settle() : reader.wrong();
}

}  // namespace baton::data
