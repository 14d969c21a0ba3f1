#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "baton/exercise/message.h"
#include "baton/exercise/process.h"

namespace baton::exercise {

/// One thing that an exercise asks for. Its points are given if it holds in every case.
class GradedPart {
 public:
  GradedPart(std::string statement, int points) : statement_(std::move(statement)), points_(points) {}

  /// The condition that must hold, as a sentence without its full stop.
  const std::string& statement() const { return statement_; }
  int points() const { return points_; }
  int earned() const { return cases_ > 0 && failed_ == 0 ? points_ : 0; }
  std::int64_t cases() const { return cases_; }
  std::int64_t failed() const { return failed_; }
  /// The fault in the first case in which the condition did not hold.
  const std::string& flaw() const { return flaw_; }

  /// Counts a case; `flaw` names what is wrong in it, by how much. Empty if nothing is.
  void judge(const std::string& flaw);

 private:
  std::string statement_;
  int points_;
  std::int64_t cases_ = 0;
  std::int64_t failed_ = 0;
  std::string flaw_;
};

/// The messages that all ranks of a case sent, counted by the checker, which delivers them.
struct MessageLog {
  struct Message {
    int from = 0;
    int to = 0;
    std::size_t values = 0;
  };
  std::vector<Message> messages;
  std::vector<std::size_t> all_reduces;  // how many values each of them had
};

/// A program while it is checked. A check draws cases, asks the program, and judges its answers: it computes all marks itself,
/// from what the program returned.
class Session {
 public:
  /// A session without a program (an empty path) asks no case, and every part fails.
  Session(std::filesystem::path program, std::uint64_t seed, const Limits& limits);
  ~Session();

  /// Adds a part of the exercise; all of them are there before the first case.
  GradedPart& part(const std::string& statement, int points);
  const std::list<GradedPart>& parts() const { return parts_; }

  /// Whole numbers from `least` to `most`, both included, uniformly distributed.
  std::int64_t draw(std::int64_t least, std::int64_t most);
  /// Real numbers, likewise.
  double draw_real(double least, double most);
  /// Real numbers whose logarithm is uniformly distributed: sizes and times.
  double draw_log(double least, double most);
  double draw_normal();
  bool draw_bool(double probability = 0.5);

  /// Asks one case, which `what` describes, and lets `judge` read the answer. If there is none (the program crashed, hung, threw or
  /// sent something else) every part fails in this case, with a sentence that says so. Before its answer a program may put
  /// questions, which `consulted` answers.
  using Judge = std::function<void(Reader& answer)>;
  using Consulted = std::function<Writer(Reader& question)>;
  void ask(const std::string& what, const Writer& given, const Judge& judge, const Consulted& consulted = {});

  /// Asks one case of as many ranks as there are messages in `given`, each a process of its own.
  using JudgeRanks = std::function<void(std::vector<Reader>& answers, const MessageLog& log)>;
  void ask_ranks(const std::string& what, const std::vector<Writer>& given, const JudgeRanks& judge);

  /// "in case 3 (4 ranks, 17 numbers)": how flaws begin.
  const std::string& in_case() const { return name_; }
  /// True if the time of the exercise is used up, or the program has hung: then no further case is asked.
  bool given_up() const { return given_up_; }
  std::int64_t cases() const { return case_; }
  /// The beginning of what the program printed.
  const std::string& printed() const { return printed_; }

 private:
  void fail_all(const std::string& flaw);
  Clock::time_point deadline() const;
  void count_time_since(Clock::time_point begin);
  std::string why_silent(Process& process);

  std::filesystem::path program_;
  Limits limits_;
  std::mt19937_64 random_;
  std::list<GradedPart> parts_;
  std::unique_ptr<Process> process_;  // the process that answers one case after the other
  Clock::duration left_;              // what is left of the time for all cases: what the checker itself computes does not count
  std::int64_t case_ = 0;
  std::string name_;
  bool given_up_ = false;
  std::string printed_;
};

}  // namespace baton::exercise
