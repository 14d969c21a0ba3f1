// The check of 03-ring-all-reduce. Each rank is a process of its own, and the checker is the network: it carries and counts
// every message.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/exercise/exercises.h"

namespace baton::exercise {
namespace {

struct Case {
  std::vector<std::vector<float>> values;  // by rank
  std::size_t ranks() const { return values.size(); }
  std::size_t length() const { return values[0].size(); }
};

/// Few values and many, fewer than ranks, none; small numbers together with large ones.
Case draw_ring(Session& session, int number) {
  const auto ranks = static_cast<std::size_t>(session.draw(number == 0 ? 1 : 2, number == 0 ? 1 : 9));
  const auto length = static_cast<std::size_t>(number == 1              ? 0
                                               : session.draw_bool(0.3) ? session.draw(1, 10)
                                                                        : std::llround(session.draw_log(10, 3000)));
  Case drawn{std::vector<std::vector<float>>(ranks, std::vector<float>(length))};
  for (std::vector<float>& values : drawn.values) {
    for (float& value : values) {
      value = static_cast<float>(session.draw_normal() * session.draw_log(0.01, 100));
    }
  }
  return drawn;
}

std::string flaw_in_sums(const Case& drawn, const std::vector<std::vector<float>>& after) {
  for (std::size_t r = 0; r < drawn.ranks(); ++r) {
    if (after[r].size() != drawn.length()) {
      return fmt::format("rank {} ends with {} values instead of {}", r, after[r].size(), drawn.length());
    }
    for (std::size_t i = 0; i < drawn.length(); ++i) {
      double sum = 0;
      double size = 0;
      for (const std::vector<float>& values : drawn.values) {
        sum += static_cast<double>(values[i]);
        size += std::abs(static_cast<double>(values[i]));
      }
      const double error = std::abs(static_cast<double>(after[r][i]) - sum);
      if (!(error <= 1e-5 * size)) {
        return fmt::format("value {} of rank {} is {:.6g}, and the sum over the ranks is {:.6g}", i, r,
                           static_cast<double>(after[r][i]), sum);
      }
    }
  }
  return "";
}

std::string flaw_in_equality(const std::vector<std::vector<float>>& after) {
  for (std::size_t r = 1; r < after.size(); ++r) {
    for (std::size_t i = 0; i < after[r].size(); ++i) {
      if (after[r][i] != after[0][i]) {
        return fmt::format("value {} is {:.9g} on rank 0 and {:.9g} on rank {}: replicas would drift apart", i,
                           static_cast<double>(after[0][i]), static_cast<double>(after[r][i]), r);
      }
    }
  }
  return "";
}

std::string flaw_in_neighbours(const MessageLog& log, int ranks) {
  for (const MessageLog::Message& message : log.messages) {
    if (message.to != (message.from + 1) % ranks) {
      return fmt::format("rank {} of {} sent to rank {}, and the next one in the ring is {}", message.from, ranks, message.to,
                         (message.from + 1) % ranks);
    }
  }
  return "";
}

/// 2 (n-1) parts of k/n values, rounded up.
std::string flaw_in_amount(const MessageLog& log, std::size_t ranks, std::size_t length) {
  const std::size_t most = 2 * (ranks - 1) * ((length + ranks - 1) / ranks);
  std::vector<std::size_t> sent(ranks, 0);
  std::vector<std::size_t> messages(ranks, 0);
  for (const MessageLog::Message& message : log.messages) {
    sent[static_cast<std::size_t>(message.from)] += message.values;
    ++messages[static_cast<std::size_t>(message.from)];
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    if (sent[r] > most) {
      return fmt::format("rank {} sent {} values, and a ring needs at most {}: {:.1f} times as many", r, sent[r], most,
                         static_cast<double>(sent[r]) / static_cast<double>(std::max<std::size_t>(most, 1)));
    }
    if (messages[r] > 2 * (ranks - 1)) {
      return fmt::format("rank {} sent {} messages, and a ring takes {}", r, messages[r], 2 * (ranks - 1));
    }
  }
  return "";
}

}  // namespace

void check_ring_all_reduce(Session& session) {
  GradedPart& sums = session.part("every rank ends with the sums", 4);
  GradedPart& equal = session.part("all ranks end with the same bits", 2);
  GradedPart& neighbours = session.part("each rank sends to the next one only", 1);
  GradedPart& amount = session.part("each rank sends at most 2 (n - 1) messages of a part of the values", 3);
  for (int i = 0; i < 24; ++i) {
    const Case drawn = draw_ring(session, i);
    std::vector<Writer> given(drawn.ranks());
    for (std::size_t r = 0; r < drawn.ranks(); ++r) {
      given[r].add(static_cast<int>(r)).add(static_cast<int>(drawn.ranks())).add(drawn.values[r]);
    }
    const std::string what = fmt::format("{} rank{}, {} values", drawn.ranks(), drawn.ranks() == 1 ? "" : "s", drawn.length());
    session.ask_ranks(what, given, [&](std::vector<Reader>& answers, const MessageLog& log) {
      std::vector<std::vector<float>> after;
      for (Reader& answer : answers) {
        after.push_back(answer.floats());
      }
      const auto in_case = [&](const std::string& flaw) { return flaw.empty() ? "" : session.in_case() + " " + flaw; };
      const std::string wrong = in_case(flaw_in_sums(drawn, after));
      sums.judge(wrong);
      // An algorithm that does not sum is not an all-reduce, however little it sends.
      equal.judge(wrong.empty() ? in_case(flaw_in_equality(after)) : wrong);
      neighbours.judge(wrong.empty() ? in_case(flaw_in_neighbours(log, static_cast<int>(drawn.ranks()))) : wrong);
      amount.judge(wrong.empty() ? in_case(flaw_in_amount(log, drawn.ranks(), drawn.length())) : wrong);
    });
  }
}

}  // namespace baton::exercise
