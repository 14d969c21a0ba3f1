#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "program.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool counts_memory = false;
#else
constexpr bool counts_memory = true;
#endif

struct Said {
  int code = -1;
  std::string err;
  long kilobytes = 0;  // the most memory that it had
};

/// Files that are cut, corrupt, huge or hostile.
class Hostile : public Cli {
 protected:
  Said say(std::vector<std::string> words) const {
    words.insert(words.begin(), BATON_PROGRAM);
    const fs::path err = folder_ / "err";
    const pid_t child = fork();
    if (child == 0) {
      std::vector<char*> list;
      for (std::string& word : words) {
        list.push_back(word.data());
      }
      list.push_back(nullptr);
      setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
      if (chdir(folder_.c_str()) != 0 || std::freopen("/dev/null", "w", stdout) == nullptr ||
          std::freopen(err.c_str(), "w", stderr) == nullptr) {
        _exit(99);
      }
      execv(list[0], list.data());
      _exit(99);
    }
    int status = 0;
    rusage usage{};
    wait4(child, &status, 0, &usage);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(err), usage.ru_maxrss};
  }
  /// Frees the text, since a child begins with as much memory as this process has.
  std::string put(const std::string& name, std::string text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    std::string().swap(text);
    return (folder_ / name).string();
  }
  /// A file that says to be a terabyte long, and is a hole.
  std::string hole(const std::string& name, const std::string& beginning = "") const {
    put(name, beginning);
    fs::resize_file(folder_ / name, std::uintmax_t{1} << 40);
    return (folder_ / name).string();
  }
  /// Ends in one sentence, and with no more memory than a run without files has, `allowed`, and twice the
  /// file.
  void expect_refused(const std::vector<std::string>& words, const fs::path& file, long allowed_mb) const {
    const std::string shown = words[0] + " of " + file.filename().string();
    const Said said = say(words);
    EXPECT_EQ(said.code, 2) << shown << ": " << said.err;
    EXPECT_TRUE(said.err.starts_with("baton: ")) << shown << ": " << said.err;
    EXPECT_EQ(std::count(said.err.begin(), said.err.end(), '\n'), 1) << shown << ": " << said.err;
    EXPECT_LE(said.err.size(), 2100U) << shown;
    if (counts_memory) {
      const long usual = say({"train", "--model", "mlp:2-1", "--steps", "2", "--warmup", "0"}).kilobytes;
      std::error_code error;
      const std::uintmax_t size = fs::is_regular_file(file) ? fs::file_size(file, error) : 0;
      const bool is_hole = size > std::uintmax_t{1} << 30;
      EXPECT_LE(said.kilobytes, usual + (allowed_mb << 10) + (is_hole ? 0 : static_cast<long>(2 * size >> 10))) << shown;
    }
  }
};

std::string repeated(const std::string& text, std::size_t bytes) {
  std::string all;
  all.reserve(bytes + text.size());
  while (all.size() < bytes) {
    all += text;
  }
  return all;
}

std::string checkpoint_with(const std::string& header) {
  std::string text(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, 8);
  return text + header;
}

TEST_F(Hostile, CheckpointsAreRefusedInTwiceTheirSize) {
  fs::create_directories(folder_ / "c");
  const std::string name = "c/step-000000000002.safetensors";
  const std::vector<std::string> resume{"train",   "--resume", "--checkpoint", "c", "--model", "mlp:2-1",
                                        "--steps", "3",        "--warmup",     "0"};
  const auto refused = [&](const std::string& file) { expect_refused(resume, file, 24); };
  refused(put(name, checkpoint_with(std::string(16 << 20, '['))));
  refused(put(name, checkpoint_with(repeated("{\"a\":", 16 << 20))));
  refused(put(name, checkpoint_with("{\"a\":{\"dtype\":\"F32\",\"shape\":[" + repeated("1,", 16 << 20))));
  refused(put(name, checkpoint_with("{\"a\":\"" + std::string(16 << 20, 'x') + "\"}")));
  refused(put(name, checkpoint_with("{\"__metadata__\":{" + repeated("\"a\":\"\",", 16 << 20) + "\"b\":\"\"}}")));
  refused(put(name, checkpoint_with("{\"a\":{\"dtype\":\"F32\",\"shape\":[1099511627776],\"data_offsets\":[0,4398046511104]}}")));
  refused(hole(name));
  refused(hole(name, checkpoint_with("{\"a\":{\"dtype\":\"F32\",\"shape\":[99],\"data_offsets\":[0,396]}}")));
  std::string many = "{";
  for (int i = 0; i < 300'000; ++i) {
    many += "\"" + std::to_string(i) + "\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},";
  }
  refused(put(name, checkpoint_with(many.substr(0, many.size() - 1) + "}")));
}

TEST_F(Hostile, ClustersAndSpecsAreRefusedInAFewMegabytes) {
  for (const bool cluster : {true, false}) {
    const auto refused = [&](const std::string& file) {
      expect_refused(cluster ? std::vector<std::string>{"simulate", "--cluster", file}
                             : std::vector<std::string>{"lab", "run", "--spec", file},
                     file, 16);
    };
    refused(hole("a.toml"));
    refused(put("b.toml", "[" + repeated("a.", 60'000) + "a]"));
    refused(put("c.toml", repeated("a.", 60'000) + "a = 1"));
    refused(put("d.toml", "a = " + std::string(60'000, '[')));
    refused(put("e.toml", "a = " + repeated("{a=", 60'000)));
    refused(put("f.toml", "[axes]\nlr = [" + repeated("1,", 60'000) + "]"));
    refused(put("g.toml", repeated("[[a]]\n", 60'000)));
    refused(put("h.toml", std::string(1000, '\0')));
    refused(put("i.toml", "summary = \"\x1b[2J\xff\xfe\""));
    refused(put("j.toml", ""));
    refused(put("k.toml", "title = \"\"\"" + std::string(60'000, 'x')));
  }
}

TEST_F(Hostile, SchedulesAreRefusedInABoundedSpace) {
  const auto refused = [&](const std::string& file) {
    expect_refused({"plan", "--pp", "2", "--devices", "cpu:2", "--schedule", file}, file, 128);
  };
  refused(hole("a.csv"));
  refused(put("b.csv", std::string(4 << 20, ',')));
  refused(put("c.csv", std::string(4 << 20, '\n')));
  refused(put("d.csv", std::string(2 << 20, ',') + "\n0F0\n0F0\n0F0\n0F0\n0F0\n0F0\n0F0"));
  refused(put("e.csv", repeated("0F0,", 4 << 20)));
  refused(put("f.csv", repeated("0F0\n", 3 << 20)));
  refused(put("g.csv", "0F0,\x1b[2J"));
  refused((fs::create_directories(folder_ / "h.csv"), (folder_ / "h.csv").string()));
}

TEST_F(Hostile, PlansAreRefusedInABoundedSpace) {
  const auto refused = [&](const std::string& file) { expect_refused({"plan", "--file", file}, file, 400); };
  const std::string begin = "baton-plan 1\ntitle \"t\"\ndevice d0 cpu\n";
  refused(hole("a.plan"));
  refused(put("b.plan", begin + std::string(16 << 20, '\n') + "x"));
  refused(put("c.plan", begin + repeated("buffer ", 16 << 20)));
  refused(put("d.plan", begin + repeated("buffer \n", 16 << 20)));
  refused(put("e.plan", begin + "task t0 d0 host forward delay ns=0 after=" + repeated("t0,", 16 << 20)));
}

TEST_F(Hostile, ResultsAreRefusedOrPassedOverInABoundedSpace) {
  const std::string spec = R"({"points":[{"devices":1}],"command":"c","preset":"quick"})";
  const auto refused = [&](std::string spec_text, std::string records) {
    fs::create_directories(folder_ / "r");
    const std::string file = put("r/strong-scaling.spec.json", std::move(spec_text));
    put("r/strong-scaling.jsonl", std::move(records));
    expect_refused({"report", "r"}, file, 64);
  };
  refused(std::string(16 << 20, '['), "");
  refused(repeated("{\"a\":", 16 << 20), "");
  refused("{\"points\":[" + repeated("{},", 16 << 20), "");
  refused("{}", "");
  refused(R"({"points":[3]})", "");
  refused(R"({"points":[],"command":3})", "");
  const auto record = [](const std::string& text) { return R"({"point":{"devices":1},"final":true,"record":)" + text + "}\n"; };
  refused(spec, record("{\"time_per_step_ns\":\"x\"}"));
  refused(spec, record("{\"time_per_step_ns\":1,\"oversubscribed\":3}"));
  refused(spec, record("{\"time_per_step_ns\":1e300,\"time_low_ns\":1,\"time_high_ns\":2,\"devices\":1}"));
  refused(spec, record("{\"reason\":[]}"));
}

TEST_F(Hostile, TimesKeptBetweenCallsMayBeAnything) {
  fs::path kept;
  for (int tries = 0; tries < 10 && kept.empty(); ++tries) {  // times that other work disturbed are not kept
    ASSERT_EQ(run("simulate --model mlp:2-1 --batch 2").code, 0);
    std::error_code none_kept;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / "cache/baton", none_kept)) {
      kept = entry.path();
    }
  }
  ASSERT_FALSE(kept.empty());
  const std::string whole = contents(kept);
  ASSERT_FALSE(whole.empty());
  const std::string machine = whole.substr(0, whole.find("\"created\""));
  for (const std::string& text :
       {std::string(), std::string("{"), std::string(20 << 20, '['), whole.substr(0, whole.size() / 2), machine + "\"times\": 3}",
        machine + "\"times\": {\"a\": [1]}}", machine + "\"times\": {\"a\": {\"b\": \"c\"}}}", machine + "\"created\": 3}"}) {
    std::ofstream(kept, std::ios::binary) << text;
    const Outcome outcome = run("simulate --model mlp:2-1 --batch 2");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
}

}  // namespace
}  // namespace baton::test
