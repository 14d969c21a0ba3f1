#include "baton/exercise/session.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>

namespace baton::exercise {
namespace {

/// The ranks of one case, and the network between them.
class Ranks {
 public:
  Ranks(const std::filesystem::path& program, const Limits& limits, const std::vector<Writer>& given, Clock::time_point deadline)
      : deadline_(deadline), wants_(given.size()), answers_(given.size()) {
    for (const Writer& one : given) {
      processes_.push_back(std::make_unique<Process>(program, limits));
      processes_.back()->tell(one.text(), deadline);
    }
  }

  /// Until all have answered; otherwise returns the error.
  std::string run(const std::function<std::string(Process&)>& why_silent) {
    while (true) {
      for (std::size_t r = 0; r < processes_.size(); ++r) {
        processes_[r]->pump();
        while (const auto message = processes_[r]->take()) {
          if (std::string flaw = handle(r, *message); !flaw.empty()) {
            return flaw;
          }
        }
        if (!answers_[r] && (processes_[r]->ended() || processes_[r]->babbles())) {
          return fmt::format("rank {} gave no answer: {}", r, why_silent(*processes_[r]));
        }
      }
      deliver();
      if (std::all_of(answers_.begin(), answers_.end(), [](const auto& one) { return one.has_value(); })) {
        return "";
      }
      if (std::string flaw = deadlock(); !flaw.empty()) {
        return flaw;
      }
      std::vector<pollfd> files;
      for (const auto& process : processes_) {
        files.push_back({process->channel(), POLLIN, 0});
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      if (left <= 0 || poll(files.data(), files.size(), static_cast<int>(std::min<std::int64_t>(left, 1'000'000))) == 0) {
        const auto late = std::find_if(answers_.begin(), answers_.end(), [](const auto& one) { return !one; });
        late_ = true;
        return fmt::format("rank {} was not done in time", late - answers_.begin());
      }
    }
  }

  bool late() const { return late_; }
  const MessageLog& message_log() const { return message_log_; }
  std::vector<Reader> answers() const {
    std::vector<Reader> list;
    for (const auto& answer : answers_) {
      list.push_back(*answer);
    }
    return list;
  }
  std::string printed() const { return processes_[0]->printed(); }

 private:
  /// The message or sum that a rank waits for, if any.
  struct Want {
    enum class Awaited { nothing, message, sum } kind = Awaited::nothing;
    int from = 0;
    std::vector<float> values;
  };

  std::string handle(std::size_t rank, const std::string& message) {
    const auto size = static_cast<std::int64_t>(processes_.size());
    Reader said(message);
    const std::string verb = said.text();
    if (answers_[rank] || wants_[rank].kind != Want::Awaited::nothing) {
      return fmt::format("rank {} sent a message out of turn", rank);
    }
    if (verb == verb::answer) {
      answers_[rank] = said;
    } else if (verb == verb::threw) {
      return fmt::format("on rank {} your function threw: {}", rank, said.text());
    } else if (verb == verb::send || verb == verb::receive) {
      const std::int64_t peer = said.integer();
      if (peer < 0 || peer >= size || peer == static_cast<std::int64_t>(rank)) {
        return fmt::format("rank {} of {} called {} with rank {}", rank, size, verb, peer);
      }
      if (verb == verb::send) {
        std::vector<float> values = said.floats();
        message_log_.messages.push_back({static_cast<int>(rank), static_cast<int>(peer), values.size()});
        under_way_[{static_cast<int>(rank), static_cast<int>(peer)}].push_back(std::move(values));
        if (message_log_.messages.size() > 100'000) {
          return fmt::format("the ranks sent more than 100 000 messages");
        }
      } else {
        wants_[rank] = {Want::Awaited::message, static_cast<int>(peer), {}};
      }
    } else if (verb == verb::all_reduce) {
      wants_[rank] = {Want::Awaited::sum, 0, said.floats()};
    } else {
      throw Malformed("it is not a known word");
    }
    return "";
  }

  void deliver() {
    for (std::size_t r = 0; r < wants_.size(); ++r) {
      auto& queue = under_way_[{wants_[r].from, static_cast<int>(r)}];
      if (wants_[r].kind == Want::Awaited::message && !queue.empty()) {
        processes_[r]->tell(Writer().add(queue.front()).text(), deadline_);
        queue.pop_front();
        wants_[r] = {};
      }
    }
    const bool all = std::all_of(wants_.begin(), wants_.end(), [&](const Want& one) {
      return one.kind == Want::Awaited::sum && one.values.size() == wants_[0].values.size();
    });
    if (!all) {
      return;
    }
    std::vector<double> sums(wants_[0].values.size(), 0);
    for (const Want& one : wants_) {
      for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] += static_cast<double>(one.values[i]);
      }
    }
    message_log_.all_reduces.push_back(sums.size());
    const std::string text = Writer().add(std::vector<float>(sums.begin(), sums.end())).text();
    for (std::size_t r = 0; r < wants_.size(); ++r) {
      wants_[r] = {};
      processes_[r]->tell(text, deadline_);
    }
  }

  /// All ranks have answered or wait, and nothing is under way for any that waits.
  std::string deadlock() const {
    std::string waits;
    for (std::size_t r = 0; r < wants_.size(); ++r) {
      if (answers_[r]) {
        continue;
      }
      if (wants_[r].kind == Want::Awaited::nothing) {
        return "";
      }
      waits += waits.empty() ? "" : ", ";
      waits += wants_[r].kind == Want::Awaited::message
                   ? fmt::format("rank {} waits for a message of rank {}", r, wants_[r].from)
                   : fmt::format("rank {} waits in all_reduce with {} values", r, wants_[r].values.size());
    }
    return "it comes to a deadlock: " + waits;
  }

  Clock::time_point deadline_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<Want> wants_;
  std::vector<std::optional<Reader>> answers_;
  std::map<std::pair<int, int>, std::deque<std::vector<float>>> under_way_;
  MessageLog message_log_;
  bool late_ = false;
};

}  // namespace

void GradedPart::judge(const std::string& flaw) {
  ++cases_;
  if (!flaw.empty()) {
    flaw_ = failed_ == 0 ? flaw : flaw_;
    ++failed_;
  }
}

Session::Session(std::filesystem::path program, std::uint64_t seed, const Limits& limits)
    : program_(std::move(program)),
      limits_(limits),
      random_(seed),
      left_(after(limits.all_seconds) - Clock::now()),
      given_up_(program_.empty()) {}

Session::~Session() = default;

GradedPart& Session::part(const std::string& statement, int points) { return parts_.emplace_back(statement, points); }

std::int64_t Session::draw(std::int64_t least, std::int64_t most) {
  return least + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most - least + 1));
}

double Session::draw_real(double least, double most) {
  return least + (most - least) * static_cast<double>(random_() >> 11) * 0x1p-53;
}

double Session::draw_log(double least, double most) { return std::exp(draw_real(std::log(least), std::log(most))); }

double Session::draw_normal() {
  const double radius = std::sqrt(-2 * std::log(1 - draw_real(0, 1)));
  return radius * std::cos(2 * 3.14159265358979323846 * draw_real(0, 1));
}

bool Session::draw_bool(double probability) { return draw_real(0, 1) < probability; }

void Session::fail_all(const std::string& flaw) {
  for (GradedPart& part : parts_) {
    part.judge(flaw);
  }
}

Clock::time_point Session::deadline() const { return std::min(after(limits_.seconds), Clock::now() + left_); }

void Session::count_time_since(Clock::time_point begin) { left_ -= std::min(left_, Clock::now() - begin); }

/// The sentence on a program that gave no answer.
std::string Session::why_silent(Process& process) {
  if (process.babbles()) {
    return "what it sent to the checker is not a message";
  }
  if (process.ended()) {
    const std::string how = process.end();
    return how.empty() ? "it closed its channel to the checker" : "it " + how;
  }
  given_up_ = true;
  return left_ < std::chrono::duration<double>(limits_.seconds)
             ? fmt::format("all cases together took it longer than {} s", limits_.all_seconds)
             : fmt::format("it was not done after {} s", limits_.seconds);
}

void Session::ask(const std::string& what, const Writer& given, const Judge& judge, const Consulted& consulted) {
  name_ = fmt::format("in case {} ({})", ++case_, what);
  if (given_up_) {
    return fail_all(fmt::format("case {} was not asked, because of that", case_));
  }
  if (!process_) {
    process_ = std::make_unique<Process>(program_, limits_);
  }
  auto begin = Clock::now();
  auto until = deadline();
  process_->tell(given.text(), until);
  std::string flaw;
  bool answered = false;
  while (!answered && flaw.empty()) {
    const auto message = Clock::now() < until ? process_->hear(until) : std::nullopt;
    if (!message) {
      flaw = "your program gave no answer: " + why_silent(*process_);
      break;
    }
    try {
      Reader said(*message);
      const std::string verb = said.text();
      if (verb == verb::answer) {
        answered = true;
        count_time_since(begin);
        judge(said);
      } else if (verb == verb::threw) {
        flaw = fmt::format("your function threw: {}", said.text());
      } else if (verb == verb::question && consulted) {
        const auto asked = Clock::now();
        const std::string reply = consulted(said).text();
        const auto computed = Clock::now() - asked;  // by the checker
        begin += computed;
        until += computed;
        process_->tell(reply, until);
      } else {
        flaw = "your program gave no answer, but something else";
      }
    } catch (const Malformed& error) {
      flaw = fmt::format("your program's answer cannot be read: {}", error.what());
    }
  }
  if (!answered) {
    count_time_since(begin);
  }
  printed_ = process_->printed();
  if (!flaw.empty()) {
    process_.reset();  // the next case gets a new one
    fail_all(fmt::format("{} {}", name_, flaw));
  }
}

void Session::ask_ranks(const std::string& what, const std::vector<Writer>& given, const JudgeRanks& judge) {
  name_ = fmt::format("in case {} ({})", ++case_, what);
  if (given_up_) {
    return fail_all(fmt::format("case {} was not asked, because of that", case_));
  }
  const auto begin = Clock::now();
  Ranks ranks(program_, limits_, given, deadline());
  std::string flaw;
  try {
    flaw = ranks.run([&](Process& process) { return why_silent(process); });
    count_time_since(begin);
    given_up_ = given_up_ || ranks.late();
    printed_ = ranks.printed();
    if (flaw.empty()) {
      std::vector<Reader> answers = ranks.answers();
      judge(answers, ranks.message_log());
    }
  } catch (const Malformed& error) {
    flaw = fmt::format("what a rank said cannot be read: {}", error.what());
  }
  if (!flaw.empty()) {
    fail_all(fmt::format("{} {}", name_, flaw));
  }
}

}  // namespace baton::exercise
