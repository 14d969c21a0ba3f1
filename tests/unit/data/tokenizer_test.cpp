#include "baton/data/tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "baton/base/text.h"
#include "baton/data/base64.h"
#include "baton/data/bpe.h"
#include "baton/data/open.h"
#include "baton/data/pre_tokens.h"
#include "baton/data/text.h"
#include "baton/data/unicode.h"
#include "support/own_folder.h"
#include "support/usage_sentence.h"
#include "written.h"

using namespace baton;
using namespace baton::data;

namespace {

using test::says;
using test::usage_sentence;
using test::write_bytes;
using PreTokens = std::vector<std::string>;

PreTokens pre_tokens(const std::string& text, Splitting splitting) {
  PreTokens list;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_pre_token(text, at, splitting);
    EXPECT_GT(end, at);
    list.push_back(text.substr(at, end - at));
    at = end;
  }
  return list;
}

// What Python's `regex` gives for GPT-2's pattern, worked out by hand.
TEST(PreTokens, AreThoseOfGpt2) {
  const auto cut = [](const std::string& text) { return pre_tokens(text, Splitting::gpt2); };
  EXPECT_EQ(cut("Hello world"), (PreTokens{"Hello", " world"}));
  EXPECT_EQ(cut("it's we'll they've I'M"), (PreTokens{"it", "'s", " we", "'ll", " they", "'ve", " I", "'", "M"}));
  EXPECT_EQ(cut("a  b   c"), (PreTokens{"a", " ", " b", "  ", " c"}));
  EXPECT_EQ(cut("a \n\n b\n"), (PreTokens{"a", " \n\n", " b", "\n"}));
  EXPECT_EQ(cut("x\tb"), (PreTokens{"x", "\t", "b"}));
  EXPECT_EQ(cut("end   "), (PreTokens{"end", "   "}));
  EXPECT_EQ(cut("in 2024, 3.14!"), (PreTokens{"in", " 2024", ",", " 3", ".", "14", "!"}));
  EXPECT_EQ(cut(" 's"), (PreTokens{" '", "s"}));
  EXPECT_EQ(cut("ab12cd"), (PreTokens{"ab", "12", "cd"}));
  EXPECT_EQ(cut("naïve Ünïcödé"), (PreTokens{"naïve", " Ünïcödé"}));
  EXPECT_EQ(cut("日本語 テスト"), (PreTokens{"日本語", " テスト"}));
  EXPECT_EQ(cut("x²½Ⅷ"), (PreTokens{"x", "²½Ⅷ"}));                                    // numbers of the categories No and Nl
  EXPECT_EQ(cut("a\u00a0b\u3000c"), (PreTokens{"a", "\u00a0", "b", "\u3000", "c"}));  // spaces other than blanks
  EXPECT_EQ(cut("👍🏽 ok"), (PreTokens{"👍🏽", " ok"}));
  EXPECT_EQ(cut("e\u0301"), (PreTokens{"e", "\u0301"}));  // a mark is not a letter
  EXPECT_EQ(cut("ß\xff!"), (PreTokens{"ß", "\xff!"}));    // a byte that is not a character
}

TEST(PreTokens, OfCl100kTakeLettersWithWhatIsBeforeThemAndThreeDigits) {
  const auto cut = [](const std::string& text) { return pre_tokens(text, Splitting::cl100k); };
  EXPECT_EQ(cut("Hello world"), (PreTokens{"Hello", " world"}));
  EXPECT_EQ(cut("I'M you'LL"), (PreTokens{"I", "'M", " you", "'LL"}));
  EXPECT_EQ(cut("12345"), (PreTokens{"123", "45"}));
  EXPECT_EQ(cut("a 12"), (PreTokens{"a", " ", "12"}));
  EXPECT_EQ(cut("(foo) .bar"), (PreTokens{"(foo", ")", " .", "bar"}));
  EXPECT_EQ(cut("a\n\n  b"), (PreTokens{"a", "\n\n", " ", " b"}));
  EXPECT_EQ(cut("x;\n\ny"), (PreTokens{"x", ";\n\n", "y"}));
  EXPECT_EQ(cut("a   \n b"), (PreTokens{"a", "   \n", " b"}));
  EXPECT_EQ(cut("tab\tword"), (PreTokens{"tab", "\tword"}));
  EXPECT_EQ(cut("a   "), (PreTokens{"a", "   "}));
  EXPECT_EQ(pre_tokens("12345", Splitting::qwen2), (PreTokens{"1", "2", "3", "4", "5"}));
}

TEST(PreTokens, MakeUpTheWholeTextWhateverItsBytes) {
  std::mt19937_64 random(9);
  for (int trial = 0; trial < 300; ++trial) {
    std::string text(random() % 60, ' ');
    for (char& c : text) {
      c = trial % 3 == 0 ? static_cast<char>(random()) : "ab1 \n\r\t'sl.\xc3\xa9\xe2\x80\x83"[random() % 17];
    }
    for (const Splitting splitting : {Splitting::gpt2, Splitting::cl100k, Splitting::qwen2}) {
      std::string whole;
      for (const std::string& piece : pre_tokens(text, splitting)) {
        whole += piece;
      }
      ASSERT_EQ(whole, text);
    }
  }
}

/// Byte pairs merged in the plainest way: the first pair of the lowest rank, again and again.
std::vector<std::int32_t> plainly_merged(const BpeParts& parts, const std::string& piece) {
  std::vector<std::string> symbols;
  for (const char c : piece) {
    symbols.emplace_back(1, c);
  }
  while (true) {
    std::int32_t best = std::numeric_limits<std::int32_t>::max();
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (const BpeParts::Merge& merge : parts.merges) {
        if (parts.tokens[static_cast<std::size_t>(merge.left)] == symbols[i] &&
            parts.tokens[static_cast<std::size_t>(merge.right)] == symbols[i + 1] && merge.rank < best) {
          best = merge.rank;
          where = i;
        }
      }
    }
    if (best == std::numeric_limits<std::int32_t>::max()) {
      break;
    }
    symbols[where] += symbols[where + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
  std::vector<std::int32_t> tokens;
  for (const std::string& symbol : symbols) {
    tokens.push_back(static_cast<std::int32_t>(std::find(parts.tokens.begin(), parts.tokens.end(), symbol) - parts.tokens.begin()));
  }
  return tokens;
}

/// All bytes and merges of random tokens that there are already, over few letters.
BpeParts random_bpe(std::mt19937_64& random, int merges) {
  BpeParts parts;
  for (int byte = 0; byte < 256; ++byte) {
    parts.tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::vector<std::int32_t> usable{'a', 'b', 'c', ' '};
  for (int i = 0; i < merges; ++i) {
    const std::int32_t left = usable[random() % usable.size()];
    const std::int32_t right = usable[random() % usable.size()];
    const std::string made = parts.tokens[static_cast<std::size_t>(left)] + parts.tokens[static_cast<std::size_t>(right)];
    if (std::find(parts.tokens.begin(), parts.tokens.end(), made) != parts.tokens.end() || made.size() > 12) {
      continue;
    }
    const auto token = static_cast<std::int32_t>(parts.tokens.size());
    parts.tokens.push_back(made);
    parts.merges.push_back({left, right, token, static_cast<std::int32_t>(parts.merges.size())});
    usable.push_back(token);
  }
  return parts;
}

std::string random_text(std::mt19937_64& random, std::size_t length) {
  std::string text(length, ' ');
  for (char& c : text) {
    c = "aaabbc  "[random() % 8];
  }
  return text;
}

std::vector<std::int32_t> plainly_encoded(const BpeParts& parts, const std::string& text) {
  std::vector<std::int32_t> tokens;
  for (const std::string& piece : pre_tokens(text, parts.splitting)) {
    const std::vector<std::int32_t> some = plainly_merged(parts, piece);
    tokens.insert(tokens.end(), some.begin(), some.end());
  }
  return tokens;
}

TEST(Bpe, MergesAsThePlainestAlgorithmDoesShortAndLongPieces) {
  std::mt19937_64 random(21);
  for (int trial = 0; trial < 40; ++trial) {
    const Bpe bpe(random_bpe(random, 30), "test");
    for (const std::size_t length : {5U, 30U, 60U}) {
      const std::string text = random_text(random, length) + std::string(trial % 2 == 0 ? 70 : 3, "ab"[trial / 2 % 2]);
      ASSERT_EQ(bpe.encode(text), plainly_encoded(bpe.parts(), text)) << text;
      EXPECT_EQ(bpe.decode(bpe.encode(text)), text);
    }
  }
}

TEST(Bpe, OfRanksMergesWhatMakesTheLowestTokenTheLeftmostFirst) {
  std::mt19937_64 random(22);
  for (int trial = 0; trial < 40; ++trial) {
    BpeParts parts = random_bpe(random, 30);
    parts.merges = implied_merges(parts.tokens);
    const Bpe bpe(parts, "test");
    const std::string text = random_text(random, 50);
    ASSERT_EQ(bpe.encode(text), plainly_encoded(parts, text)) << text;
  }
}

TEST(Bpe, EncodesAMillionEqualLettersInNoTime) {
  std::mt19937_64 random(23);
  const Bpe bpe(random_bpe(random, 20), "test");
  const std::string text(1'000'000, 'a');
  EXPECT_EQ(bpe.decode(bpe.encode(text)), text);
}

TEST(Bpe, OfATextInPiecesIsThatOfTheWhole) {
  std::mt19937_64 random(24);
  const Bpe bpe(random_bpe(random, 30), "test");
  for (int trial = 0; trial < 50; ++trial) {
    const std::string text = random_text(random, 200);
    const std::size_t cut = bpe.safe_cut(text);
    std::vector<std::int32_t> tokens = bpe.encode(text.substr(0, cut));
    bpe.encode(text.substr(cut), tokens);
    ASSERT_EQ(tokens, bpe.encode(text)) << text << " at " << cut;
  }
}

class TokenizerFiles : public test::OwnFolder {
 protected:
  /// GPT-2's way to write bytes, done differently from the program: a table of the characters for the bytes that cannot be seen.
  static std::string seen(unsigned char byte) {
    std::string text;
    const bool visible = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    const int number = visible ? byte : 0x100 + (byte <= 0x20 ? byte : byte <= 0xa0 ? byte - 0x7f + 33 : 67);
    append_character(text, static_cast<char32_t>(number));
    return text;
  }
  static std::string quoted(const std::string& text) {
    std::string made = "\"";
    for (const char c : text) {
      made += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
    }
    return made + "\"";
  }
  /// The bytes, then the tokens of these merges, then <|endoftext|>.
  static std::string vocabulary(const std::vector<std::pair<std::string, std::string>>& merges) {
    std::string text = "{";
    for (int byte = 0; byte < 256; ++byte) {
      text += fmt::format("{}: {}, ", quoted(seen(static_cast<unsigned char>(byte))), byte);
    }
    int next = 256;
    for (const auto& [left, right] : merges) {
      text += fmt::format("{}: {}, ", quoted(left + right), next++);
    }
    return text + fmt::format("\"<|endoftext|>\": {}}}", next);
  }
  const std::vector<std::pair<std::string, std::string>> merges_{{"t", "h"}, {"Ġ", "th"}, {"th", "e"}, {"Ġth", "e"}, {"Ċ", "Ċ"}};

  std::string tokenizer_json(const std::string& cutting, const std::string& more = "") const {
    std::string merges;
    for (const auto& [left, right] : merges_) {
      merges += fmt::format("{}\"{} {}\"", merges.empty() ? "" : ", ", left, right);
    }
    return fmt::format(
        R"({{"version": "1.0", "added_tokens": [{{"id": 261, "content": "<|endoftext|>", "special": true}}], "normalizer": null,
           "pre_tokenizer": {}, "decoder": {{"type": "ByteLevel"}},
           "model": {{"type": "BPE", "dropout": null, "vocab": {}, "merges": [{}]{}}}}})",
        cutting, vocabulary(merges_), merges, more);
  }
};

TEST_F(TokenizerFiles, OfGpt2InEachFormGiveTheSameTokens) {
  const std::string text = "the the th\n\n The \xff e\xc3\xa9";
  //                        the, ' the', ' th', \n\n, ' ', T, h, e, ' ', \xff, ' ', e, é: worked out by hand
  const std::vector<std::int32_t> tokens{258, 259, 257, 260, ' ', 'T', 'h', 'e', ' ', 0xff, ' ', 'e', 0xc3, 0xa9};
  write_bytes(folder_ / "vocab.json", vocabulary(merges_));
  std::string merges = "#version: 0.2\n";
  for (const auto& [left, right] : merges_) {
    merges += left + " " + right + "\n";
  }
  write_bytes(folder_ / "merges.txt", merges);
  std::string ranks;
  for (int byte = 0; byte < 256; ++byte) {
    ranks += fmt::format("{} {}\n", to_base64(std::string(1, static_cast<char>(byte))), byte);
  }
  for (const auto& [token, rank] :
       {std::pair("th", 256), std::pair(" th", 257), std::pair("the", 258), std::pair(" the", 259), std::pair("\n\n", 260)}) {
    ranks += fmt::format("{} {}\n", to_base64(token), rank);
  }
  write_bytes(folder_ / "ranks.tiktoken", ranks);
  write_bytes(folder_ / "tokenizer.json",
              tokenizer_json(R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true})"));
  write_bytes(folder_ / "pairs.json", [&] {
    std::string made = tokenizer_json(R"({"type": "ByteLevel", "add_prefix_space": false})");
    for (const auto& [left, right] : merges_) {
      const std::string one = fmt::format("\"{} {}\"", left, right);
      made.replace(made.find(one), one.size(), fmt::format("[\"{}\", \"{}\"]", left, right));
    }
    return made;
  }());
  for (const char* name : {"vocab.json", "merges.txt", "ranks.tiktoken", "tokenizer.json", "pairs.json"}) {
    const auto tokenizer = read_tokenizer(folder_ / name);
    EXPECT_EQ(tokenizer->encode(text), tokens) << name;
    EXPECT_EQ(tokenizer->decode(tokens), text) << name;
    EXPECT_EQ(tokenizer->vocabulary(), 262) << name;
    EXPECT_EQ(tokenizer->end_of_text(), 261) << name;
    EXPECT_EQ(tokenizer->decode(261), "<|endoftext|>") << name;
    // Plain text never becomes a special token.
    EXPECT_GT(tokenizer->encode("<|endoftext|>").size(), 1U) << name;
    write_bytes(folder_ / "own.tokenizer", tokenizer->serialized());
    const auto again = read_tokenizer(folder_ / "own.tokenizer");
    EXPECT_EQ(again->encode(text), tokens) << name;
    EXPECT_EQ(again->end_of_text(), 261) << name;
  }
  EXPECT_EQ(read_tokenizer(folder_)->vocabulary(), 262);
}

TEST_F(TokenizerFiles, OfLlama3CutAsItsRuleSays) {
  const std::string split =
      R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}, "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
  write_bytes(folder_ / "tokenizer.json", tokenizer_json(split, R"(, "ignore_merges": true)"));
  EXPECT_EQ(read_tokenizer(folder_ / "tokenizer.json")->encode(" the"), (std::vector<std::int32_t>{259}));
  EXPECT_EQ(read_tokenizer(folder_ / "tokenizer.json")->encode("\tthe"), (std::vector<std::int32_t>{'\t', 258}));
}

TEST_F(TokenizerFiles, WithAddedTokensThatAreNotSpecialTakeThemAsOneTokenEach) {
  std::string json = tokenizer_json(R"({"type": "ByteLevel", "add_prefix_space": false})");
  const std::string special = R"([{"id": 261, "content": "<|endoftext|>", "special": true})";
  json.replace(json.find(special), special.size(),
               special + R"(, {"id": 262, "content": "<call>", "special": false}, {"id": 263, "content": "<call>>"},
                           {"id": 264, "content": "the end", "special": false})");
  write_bytes(folder_ / "tokenizer.json", json);
  const auto read = read_tokenizer(folder_ / "tokenizer.json");
  write_bytes(folder_ / "own.tokenizer", read->serialized());
  for (const auto& tokenizer : {read, read_tokenizer(folder_ / "own.tokenizer")}) {
    EXPECT_EQ(tokenizer->vocabulary(), 265);
    EXPECT_EQ(tokenizer->encode("<call>"), (std::vector<std::int32_t>{262}));
    EXPECT_EQ(tokenizer->encode("the<call>>the"), (std::vector<std::int32_t>{258, 263, 258})) << "the longest of two";
    EXPECT_EQ(tokenizer->encode("<call> the<call"), (std::vector<std::int32_t>{262, 259, '<', 'c', 'a', 'l', 'l'}));
    EXPECT_EQ(tokenizer->encode("in the end"), (std::vector<std::int32_t>{'i', 'n', ' ', 264})) << "before anything is merged";
    EXPECT_GT(tokenizer->encode("<|endoftext|>").size(), 1U);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("a<call>b the end")), "a<call>b the end");
    // A text is not cut within one.
    EXPECT_EQ(tokenizer->safe_cut("some words of the end"), std::string("some words of").size());
    EXPECT_EQ(tokenizer->safe_cut("some words of the e"), std::string("some words of").size()) << "the end may follow";
    EXPECT_EQ(tokenizer->safe_cut("some words of the one"), std::string("some words of the").size());
  }
  const std::string plain = R"("content": "<call>")";
  json.replace(json.find(plain), plain.size(), plain + R"(, "lstrip": true)");
  write_bytes(folder_ / "tokenizer.json", json);
  EXPECT_TRUE(says(usage_sentence([&] { read_tokenizer(folder_ / "tokenizer.json"); }), "its added token <call> depends on"));
}

TEST_F(TokenizerFiles, WithATemplateBeginEveryTextAsItSays) {
  const auto with = [&](const std::string& processor) {
    std::string json = tokenizer_json(R"({"type": "ByteLevel", "add_prefix_space": false})");
    json.replace(json.find(R"("decoder")"), 0, R"("post_processor": )" + processor + ", ");
    write_bytes(folder_ / "tokenizer.json", json);
    return read_tokenizer(folder_ / "tokenizer.json");
  };
  const std::string end = R"({"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}})";
  const std::string text = R"({"Sequence": {"id": "A", "type_id": 0}})";
  const std::string steps = fmt::format(
      R"({{"type": "Sequence", "processors": [{{"type": "ByteLevel", "trim_offsets": true}}, {{"type": "TemplateProcessing",
         "single": [{}, {}], "pair": [{}, {}], "special_tokens": {{"<|endoftext|>": {{"id": "<|endoftext|>", "ids": [261],
         "tokens": ["<|endoftext|>"]}}}}}}]}})",
      end, text, text, end);
  const auto read = with(steps);
  write_bytes(folder_ / "own.tokenizer", read->serialized());
  write_bytes(folder_ / "text.txt", "the the");
  for (const auto& tokenizer : {read, read_tokenizer(folder_ / "own.tokenizer")}) {
    EXPECT_EQ(tokenizer->beginning(), (std::vector<std::int32_t>{261}));
    EXPECT_EQ(tokenizer->encode("the"), (std::vector<std::int32_t>{258}));
    std::vector<std::int32_t> tokens;
    const auto take = [&](std::span<const std::int32_t> some, std::uint64_t) {
      tokens.insert(tokens.end(), some.begin(), some.end());
    };
    encode_text(whole_text(folder_ / "text.txt"), *tokenizer, take);
    EXPECT_EQ(tokens, (std::vector<std::int32_t>{261, 258, 259}));
    tokens.clear();
    encode_text({folder_ / "text.txt", 3, 7}, *tokenizer, take);
    EXPECT_EQ(tokens, (std::vector<std::int32_t>{259})) << "this is no beginning";
  }
  EXPECT_TRUE(with("null")->beginning().empty());
  EXPECT_TRUE(with(R"({"type": "ByteLevel", "trim_offsets": false})")->beginning().empty());
  const auto refused = [&](const std::string& processor) { return usage_sentence([&] { with(processor); }); };
  const auto single = [](const std::string& list) { return R"({"type": "TemplateProcessing", "single": [)" + list + "]}"; };
  EXPECT_TRUE(says(refused(single(text + ", " + end)), "TemplateProcessing adds <|endoftext|> after a text"));
  EXPECT_TRUE(says(refused(single(R"({"SpecialToken": {"id": "<none>"}}, )" + text)),
                   "<none> before a text, which is not one of its tokens"));
  EXPECT_TRUE(says(refused(R"({"type": "RobertaProcessing", "sep": ["</s>", 2]})"), "RobertaProcessing"));
}

TEST_F(TokenizerFiles, ThatAskForWhatIsNotKnownAreRefusedByName) {
  const auto refused = [&](const std::string& text, const char* name = "tokenizer.json") {
    write_bytes(folder_ / name, text);
    return usage_sentence([&] { read_tokenizer(folder_ / name); });
  };
  const std::string level = R"({"type": "ByteLevel", "add_prefix_space": false})";
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = tokenizer_json(level);
    EXPECT_NE(text.find(from), std::string::npos);
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_TRUE(says(refused(with("\"BPE\"", "\"WordPiece\"")), "WordPiece"));
  EXPECT_TRUE(says(refused(with("\"normalizer\": null", R"("normalizer": {"type": "NFC"})")), "NFC"));
  EXPECT_TRUE(says(refused(with("\"dropout\": null", "\"dropout\": 0.1")), "dropout"));
  EXPECT_TRUE(says(refused(with("\"dropout\": null", "\"byte_fallback\": true")), "bytes"));
  EXPECT_TRUE(says(refused(tokenizer_json(R"({"type": "Metaspace"})")), "Metaspace"));
  EXPECT_TRUE(says(refused(tokenizer_json("null")), "nothing"));
  EXPECT_TRUE(says(refused(tokenizer_json(R"({"type": "ByteLevel", "add_prefix_space": true})")), "blank"));
  EXPECT_TRUE(says(refused(tokenizer_json(R"({"type": "ByteLevel", "use_regex": false})")), "rule"));
  EXPECT_TRUE(says(refused(with("\"Ġ th\"", "\"Ġ xx\"")), "are not tokens"));
  EXPECT_TRUE(says(refused(with("\"th\": 256", "\"th\": 4000000000")), "4000000000"));
  EXPECT_TRUE(says(refused(with("\"th\": 256", "\"th\": 257")), "two tokens"));
  EXPECT_TRUE(says(refused(with("\"th\": 256", "\"th\": -1")), "-1"));
  EXPECT_TRUE(says(refused("[1, 2"), "tokenizer.json"));
  EXPECT_TRUE(says(refused(std::string(100'000, '[')), "tokenizer.json"));
  EXPECT_TRUE(says(refused("{}"), "no vocabulary"));
  EXPECT_TRUE(says(refused("{\"a\": 1}", "vocab.json"), "merges.txt"));
  write_bytes(folder_ / "merges.txt", "a b c\n");
  EXPECT_TRUE(says(refused("{\"a\": 1}", "vocab.json"), "line 1"));
  write_bytes(folder_ / "merges.txt", "");
  EXPECT_TRUE(says(refused("{\"a\": 1}", "vocab.json"), "no token for the byte 0"));
  EXPECT_TRUE(says(refused("{\"a\": [1]}", "vocab.json"), "tokens with their numbers"));
  EXPECT_TRUE(says(refused("hello world\n", "x.tiktoken"), "not in any tokenizer format"));
  EXPECT_TRUE(says(refused("YQ== 0\nYg== x\n", "x.tiktoken"), "line 2"));
  EXPECT_TRUE(says(refused("YQ== 99999999\n", "x.tiktoken"), "99999999"));
  EXPECT_TRUE(says(refused("baton tokenizer chars\nba", "a.tokenizer"), "order"));
  EXPECT_TRUE(says(refused("baton tokenizer bpe\ngpt2 merged\nm 1 2 3 x\n", "a.tokenizer"), "damaged"));
  EXPECT_TRUE(says(refused("baton tokenizer what\n", "a.tokenizer"), "damaged"));
  EXPECT_TRUE(says(usage_sentence([&] { tokenizer_by_name("gpt2"); }), "bytes, chars"));
  EXPECT_TRUE(says(usage_sentence([&] { tokenizer_by_name("chars"); }), "made of a text"));
}

TEST_F(TokenizerFiles, OfCharactersHaveThoseOfTheTextInOrder) {
  const std::string text = "héllo wörld\n日本 hello";
  write_bytes(folder_ / "a.txt", text);
  const auto tokenizer = tokenizer_for("chars", {folder_ / "a.txt"});
  EXPECT_EQ(tokenizer->vocabulary(), 13);  // \n, blank, d, e, h, l, o, r, w, é, ö, two signs
  const std::vector<std::int32_t> tokens = tokenizer->encode(text);
  EXPECT_EQ(tokens.size(), 20U);
  EXPECT_EQ(tokenizer->decode(tokens), text);
  EXPECT_EQ(tokenizer->encode("\n d"), (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_TRUE(says(usage_sentence([&] { tokenizer->encode("hex"); }), "'x' (U+0078)"));
  EXPECT_TRUE(says(usage_sentence([&] { tokenizer->encode("he\xff"); }), "UTF-8"));
  write_bytes(folder_ / "a.tokenizer", tokenizer->serialized());
  EXPECT_EQ(read_tokenizer(folder_ / "a.tokenizer")->encode(text), tokens);
  write_bytes(folder_ / "bad.txt", "abc\xc3(");
  EXPECT_TRUE(says(usage_sentence([&] { tokenizer_for("chars", {folder_ / "bad.txt"}); }), "at byte 3"));
}

TEST(Base64, IsThatOfTheStandard) {
  // The examples of RFC 4648.
  const std::vector<std::pair<std::string, std::string>> known{{"", ""},
                                                               {"f", "Zg=="},
                                                               {"fo", "Zm8="},
                                                               {"foo", "Zm9v"},
                                                               {"foob", "Zm9vYg=="},
                                                               {"fooba", "Zm9vYmE="},
                                                               {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : known) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
  }
  for (const char* wrong : {"Zg=", "Z===", "Zg==Zg==", "Z g=", "=Zg="}) {
    EXPECT_EQ(from_base64(wrong), std::nullopt) << wrong;
  }
}

TEST(Unicode, CharactersAreReadAsTheyAreWritten) {
  for (char32_t point = 0; point < 0x110000; point += point < 0x3000 ? 1 : 97) {
    if (point >= 0xd800 && point < 0xe000) {
      continue;
    }
    std::string text;
    append_character(text, point);
    ASSERT_TRUE(is_utf8(text)) << static_cast<std::uint32_t>(point);
    ASSERT_EQ(character_at(text, 0).point, point);
    ASSERT_EQ(character_at(text, 0).length, text.size());
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(unfinished_at_end("a" + text.substr(0, cut)), cut);
    }
    ASSERT_EQ(unfinished_at_end(text), 0U);
  }
}

class Texts : public test::OwnFolder {
 protected:
  static Form form(std::int64_t context, std::int64_t vocabulary) {
    return {.input = {context}, .integers = true, .vocabulary = vocabulary, .target = {context}, .classes = vocabulary};
  }
};

TEST_F(Texts, AreBytesUnlessAnotherTokenizerIsAskedFor) {
  write_bytes(folder_ / "a.txt", "Hello, \xff world");
  const Parts parts = open((folder_ / "a.txt").string());
  EXPECT_EQ(parts.train->description().vocabulary, 256);
  EXPECT_EQ(parts.train->tokenizer()->name(), "bytes");
  std::vector<std::int32_t> out(5);
  parts.train->samples(form(5, 256), {})->target({0, 0}, std::span(out));
  EXPECT_EQ(out, (std::vector<std::int32_t>{'e', 'l', 'l', 'o', ','}));
  EXPECT_TRUE(says(usage_sentence([&] { parts.train->samples(form(5, 100), {}); }), "vocab=256"));
}

TEST_F(Texts, OfTwoPartsShareTheirCharacters) {
  write_bytes(folder_ / "train.txt", "abcabcabc");
  write_bytes(folder_ / "val.txt", "xyzabc");
  const Parts parts = open(folder_.string(), {.tokenizer = "chars"});
  ASSERT_TRUE(parts.train && parts.test);
  EXPECT_EQ(parts.train->description().vocabulary, 6);
  EXPECT_EQ(parts.train->tokenizer(), parts.test->tokenizer());
  std::vector<std::int32_t> out(3);
  parts.test->samples(form(3, 6), {})->input({0, 0}, std::span(out));
  EXPECT_EQ(out, (std::vector<std::int32_t>{3, 4, 5}));
  const Parts other = open((folder_ / "val.txt").string(), {.given_tokenizer = parts.train->tokenizer()});
  EXPECT_EQ(other.train->description().vocabulary, 6);
}

TEST_F(Texts, OfThreePartsAreTrainedOnAndValidated) {
  for (const char* name : {"train", "valid", "test", "valley", "latest"}) {
    write_bytes(folder_ / fmt::format("wiki.{}.txt", name), std::string(name) + "!");
  }
  const Parts parts = open(folder_.string());
  EXPECT_EQ(parts.train->description().count, 20);  // train, valley and latest
  EXPECT_EQ(parts.test->description().count, 6);
  std::filesystem::remove(folder_ / "wiki.valid.txt");
  EXPECT_EQ(open(folder_.string()).test->description().count, 5);
}

TEST_F(Texts, LongerThanAPieceAreEncodedAsTheWhole) {
  std::mt19937_64 random(31);
  std::string text;
  while (text.size() < 9'000'000) {
    text += std::string(1 + random() % 9, static_cast<char>('a' + random() % 3)) + (random() % 9 == 0 ? "é " : " ");
  }
  write_bytes(folder_ / "long.txt", text);
  std::mt19937_64 merges(32);
  const Bpe bpe(random_bpe(merges, 30), "test");
  std::vector<std::int32_t> tokens;
  std::uint64_t bytes = 0;
  encode_text(whole_text(folder_ / "long.txt"), bpe, [&](std::span<const std::int32_t> some, std::uint64_t of) {
    tokens.insert(tokens.end(), some.begin(), some.end());
    bytes += of;
  });
  EXPECT_EQ(bytes, text.size());
  EXPECT_TRUE(tokens == bpe.encode(text));
}

}  // namespace
