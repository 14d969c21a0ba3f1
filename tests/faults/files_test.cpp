#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "faults/preloaded.h"
#include "support/contents.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* job = "--model mlp:3-2 --batch 2 --warmup 0 --quiet";
constexpr const char* old_name = "step-000000000002.safetensors";
constexpr const char* new_name = "step-000000000004.safetensors";

bool is_one_sentence(const std::string& text) {
  return text.starts_with("baton: ") && text.ends_with("\n") && std::count(text.begin(), text.end(), '\n') == 1;
}

bool has_leftovers(const fs::path& folder) {
  return std::any_of(fs::directory_iterator(folder), fs::directory_iterator(),
                     [](const fs::directory_entry& entry) { return entry.path().extension() == ".tmp"; });
}

class Faults : public Preloaded {
 protected:
  /// Runs the program with the n-th operation on files under `under` going wrong.
  Outcome fail_at(int n, const std::string& what, const fs::path& under, const std::string& arguments) const {
    return run_with(fmt::format("BATON_FAULT={} BATON_FAULT_AT={} BATON_FAULT_UNDER='{}' LD_PRELOAD=" BATON_FILE_FAULTS, what, n,
                                under.string()),
                    arguments);
  }
  /// The operations that a run without faults has.
  std::vector<std::string> operations(const fs::path& under, const std::string& arguments) const {
    const fs::path list = folder_ / "operations";
    fs::remove(list);
    EXPECT_EQ(run_with(fmt::format("BATON_FAULT_COUNT='{}' BATON_FAULT_UNDER='{}' LD_PRELOAD=" BATON_FILE_FAULTS, list.string(),
                                   under.string()),
                       arguments)
                  .code,
              0);
    std::istringstream lines(contents(list));
    std::vector<std::string> names;
    for (std::string name; std::getline(lines, name);) {
      names.push_back(name);
    }
    return names;
  }
};

TEST_F(Faults, LeaveTheOldOrTheNewCheckpointWhereverSavingStops) {
  const fs::path kept = folder_ / "kept";
  const fs::path folder = folder_ / "checkpoints";
  ASSERT_EQ(run(fmt::format("train {} --steps 2 --checkpoint {}", job, kept.string())).code, 0);
  // Only one is kept, so that the old one goes as soon as the new one is there.
  const std::string save = fmt::format("train {} --steps 4 --resume --keep 1 --checkpoint {}", job, folder.string());
  const auto begin = [&] {
    fs::remove_all(folder);
    fs::copy(kept, folder);
  };
  begin();
  const std::vector<std::string> all = operations(folder, save);
  const std::string old_bytes = contents(kept / old_name);
  const std::string new_bytes = contents(folder / new_name);
  ASSERT_FALSE(old_bytes.empty());
  ASSERT_FALSE(new_bytes.empty());
  for (const char* needed : {"open", "write", "fsync", "close", "rename", "unlink"}) {
    ASSERT_NE(std::find(all.begin(), all.end(), needed), all.end()) << "saving has no " << needed;
  }
  for (const char* what : {"kill", "torn", "short", "ENOSPC", "EIO"}) {
    for (std::size_t n = 1; n <= all.size(); ++n) {
      SCOPED_TRACE(fmt::format("{} at operation {}, {}", what, n, all[n - 1]));
      if (all[n - 1] != "write" && (std::string(what) == "torn" || std::string(what) == "short")) {
        continue;
      }
      begin();
      const Outcome outcome = fail_at(static_cast<int>(n), what, folder, save);
      const bool old_there = fs::exists(folder / old_name);
      const bool new_there = fs::exists(folder / new_name);
      EXPECT_TRUE(old_there || new_there) << "neither is there";
      EXPECT_TRUE(!old_there || contents(folder / old_name) == old_bytes) << "the old one was changed";
      EXPECT_TRUE(!new_there || contents(folder / new_name) == new_bytes) << "the new one is not whole";
      const bool killed = std::string(what) == "kill" || std::string(what) == "torn";
      if (killed) {
        EXPECT_NE(outcome.code, 0);
      } else {
        EXPECT_FALSE(has_leftovers(folder));
        EXPECT_TRUE(outcome.code == 0 ? new_there : is_one_sentence(outcome.err)) << outcome.code << ": " << outcome.err;
      }
      const Outcome again = run(save);
      EXPECT_TRUE(again.code == 0 || (new_there && again.code == 2)) << again.err;  // or it is at the last step already
      EXPECT_EQ(contents(folder / new_name), new_bytes);
      EXPECT_FALSE(has_leftovers(folder));
    }
  }
}

TEST_F(Faults, LeaveResultsAndTracesWholeOrAsTheyWere) {
  const fs::path folder = folder_ / "results";
  fs::create_directories(folder);
  const std::string write = fmt::format("train {} --steps 2 --json {}/r.json --trace {}/t.json", job, folder.string(),
                                        folder.string());
  const std::vector<std::string> all = operations(folder, write);
  ASSERT_GE(all.size(), 10U);
  for (const char* what : {"kill", "torn", "short", "ENOSPC", "EIO"}) {
    for (std::size_t n = 1; n <= all.size(); ++n) {
      SCOPED_TRACE(fmt::format("{} at operation {}, {}", what, n, all[n - 1]));
      if (all[n - 1] != "write" && (std::string(what) == "torn" || std::string(what) == "short")) {
        continue;
      }
      fs::remove_all(folder);
      fs::create_directories(folder);
      for (const char* name : {"r.json", "t.json"}) {
        std::ofstream(folder / name) << "old";
      }
      const Outcome outcome = fail_at(static_cast<int>(n), what, folder, write);
      for (const char* name : {"r.json", "t.json"}) {
        const std::string text = contents(folder / name);
        EXPECT_TRUE(text == "old" || (text.starts_with("{") && (text.ends_with("}\n") || text.ends_with("}"))))
            << name << ": " << text;
      }
      if (outcome.code != 0 && outcome.code != -1 && outcome.code < 128) {
        EXPECT_TRUE(is_one_sentence(outcome.err)) << outcome.err;
        EXPECT_FALSE(has_leftovers(folder));
      }
    }
  }
}

TEST_F(Faults, OfAFullDiskAreSaidAndLeaveTheOldCheckpoint) {
  const fs::path disk = folder_ / "disk";
  fs::create_directories(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=160k") != 0) {
    GTEST_SKIP() << "a small disk takes root";
  }
  const std::string bigger = "--model mlp:dim=128,depth=1 --batch 2 --warmup 0 --quiet";  // 66 KiB: two fit, three do not
  EXPECT_EQ(run(fmt::format("train {} --steps 2 --checkpoint {}", bigger, disk.string())).code, 0);
  const std::string old_bytes = contents(disk / old_name);
  std::ofstream(disk / "others") << std::string(40 << 10, 'x');
  const Outcome outcome = run(fmt::format("train {} --steps 4 --resume --checkpoint {}", bigger, disk.string()));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(is_one_sentence(outcome.err)) << outcome.err;
  EXPECT_NE(outcome.err.find("No space left on device"), std::string::npos) << outcome.err;
  EXPECT_EQ(contents(disk / old_name), old_bytes);
  EXPECT_FALSE(has_leftovers(disk));
  const Outcome written = run(
      fmt::format("train {} --steps 400 --json {}/r.json --trace {}/t.json", job, disk.string(), disk.string()));
  EXPECT_EQ(written.code, 1);
  EXPECT_TRUE(is_one_sentence(written.err)) << written.err;
  EXPECT_FALSE(has_leftovers(disk));
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

}  // namespace
}  // namespace baton::test
