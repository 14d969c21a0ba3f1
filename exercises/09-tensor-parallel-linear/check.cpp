// The check of 09-tensor-parallel-linear. Each rank is a process of its own, and the checker adds up what they all_reduce.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/base/divide.h"
#include "baton/exercise/exercises.h"

namespace baton::exercise {
namespace {

using Values = std::vector<double>;

struct Sizes {
  std::int64_t ranks, batch, in, hidden, out;
};

struct Tensors {
  Values first, bias, second, last_bias, x, dy;
};

/// The results of one device, in double precision.
struct Wanted {
  Values y, first, bias, second, last_bias, x;
};

/// a(m, k) · b(k, n), either of them transposed in memory.
Values product(const Values& a, const Values& b, std::int64_t m, std::int64_t k, std::int64_t n, bool a_flipped, bool b_flipped) {
  Values c(static_cast<std::size_t>(m * n), 0);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t l = 0; l < k; ++l) {
        c[static_cast<std::size_t>(i * n + j)] += a[static_cast<std::size_t>(a_flipped ? l * m + i : i * k + l)] *
                                                  b[static_cast<std::size_t>(b_flipped ? j * k + l : l * n + j)];
      }
    }
  }
  return c;
}

Values column_sums(const Values& a, std::size_t columns) {
  Values sums(columns, 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    sums[i % columns] += a[i];
  }
  return sums;
}

Wanted on_one_device(const Sizes& size, const Tensors& t) {
  Values h = product(t.x, t.first, size.batch, size.in, size.hidden, false, false);
  for (std::size_t i = 0; i < h.size(); ++i) {
    h[i] = std::max(0.0, h[i] + t.bias[i % t.bias.size()]);
  }
  Wanted w;
  w.y = product(h, t.second, size.batch, size.hidden, size.out, false, false);
  for (std::size_t i = 0; i < w.y.size(); ++i) {
    w.y[i] += t.last_bias[i % t.last_bias.size()];
  }
  Values dh = product(t.dy, t.second, size.batch, size.out, size.hidden, false, true);
  for (std::size_t i = 0; i < dh.size(); ++i) {
    dh[i] = h[i] > 0 ? dh[i] : 0;
  }
  w.second = product(h, t.dy, size.hidden, size.batch, size.out, true, false);
  w.last_bias = column_sums(t.dy, static_cast<std::size_t>(size.out));
  w.first = product(t.x, dh, size.in, size.batch, size.hidden, true, false);
  w.bias = column_sums(dh, static_cast<std::size_t>(size.hidden));
  w.x = product(dh, t.first, size.batch, size.hidden, size.in, false, true);
  return w;
}

/// Multiples of 1/8, so that no product or sum is rounded, and none is near to a ReLU's edge by rounding alone.
Values draw_values(Session& session, std::int64_t count) {
  Values values(static_cast<std::size_t>(count));
  std::generate(values.begin(), values.end(), [&] { return static_cast<double>(session.draw(-16, 16)) / 8; });
  return values;
}

std::string flaw_in(const char* what, std::size_t rank, const std::vector<float>& got, const Values& wanted) {
  if (got.size() != wanted.size()) {
    return fmt::format("{} of rank {} has {} values instead of {}", what, rank, got.size(), wanted.size());
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!(std::abs(static_cast<double>(got[i]) - wanted[i]) <= 1e-4 * (1 + std::abs(wanted[i])))) {
      return fmt::format("value {} of {} of rank {} is {:.6g} and should be {:.6g}", i, what, rank, static_cast<double>(got[i]),
                         wanted[i]);
    }
  }
  return "";
}

/// Columns of a matrix with this many of them.
Values columns_of(const Values& whole, std::int64_t columns, const Range& range) {
  Values part;
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(whole.size()); at += columns) {
    part.insert(part.end(), whole.begin() + at + range.begin, whole.begin() + at + range.end);
  }
  return part;
}

Values rows_of(const Values& whole, std::int64_t columns, const Range& range) {
  return {whole.begin() + range.begin * columns, whole.begin() + range.end * columns};
}

struct Answered {
  std::int64_t hidden = 0;
  std::vector<float> first, bias, second, last_bias;
};

Answered read_layers(Reader& answer) {
  Answered read;
  read.hidden = answer.integer();
  read.first = answer.floats();
  read.bias = answer.floats();
  read.second = answer.floats();
  read.last_bias = answer.floats();
  return read;
}

/// A rank's part of the layers, or of their gradients, compared with the part that it should be.
std::string flaw_in_part(const char* of, std::size_t rank, const Answered& got, const Sizes& size, const Values& first,
                         const Values& bias, const Values& second, const Values& last_bias) {
  const Range range = divide(size.hidden, size.ranks, static_cast<std::int64_t>(rank), Remainder::first);
  const auto name = [&](const char* what) { return fmt::format("{}{}", of, what); };
  for (const std::string& flaw : {flaw_in(name("first").c_str(), rank, got.first, columns_of(first, size.hidden, range)),
                                  flaw_in(name("bias").c_str(), rank, got.bias, columns_of(bias, size.hidden, range)),
                                  flaw_in(name("second").c_str(), rank, got.second, rows_of(second, size.out, range)),
                                  flaw_in(name("last_bias").c_str(), rank, got.last_bias, last_bias)}) {
    if (!flaw.empty()) {
      return flaw;
    }
  }
  return "";
}

}  // namespace

void check_tensor_parallel_linear(Session& session) {
  GradedPart& divided = session.part("each rank holds its columns of the first layer and its rows of the second", 2);
  GradedPart& forward = session.part("y is right on every rank", 3);
  GradedPart& gradient_x = session.part("the gradient of x is right on every rank", 2);
  GradedPart& gradients = session.part("each rank has the gradients of its part", 2);
  GradedPart& messages = session.part("there is one all_reduce of the size of y and one of the size of x, and nothing else", 1);
  for (int i = 0; i < 16; ++i) {
    const std::int64_t ranks = i == 0 ? 1 : session.draw(2, 6);
    const Sizes size{ranks, session.draw(1, 6), session.draw(1, 12), session.draw(ranks, 24), session.draw(1, 12)};
    Tensors t;
    t.first = draw_values(session, size.in * size.hidden);
    t.bias = draw_values(session, size.hidden);
    t.second = draw_values(session, size.hidden * size.out);
    t.last_bias = draw_values(session, size.out);
    t.x = draw_values(session, size.batch * size.in);
    t.dy = draw_values(session, size.batch * size.out);
    std::vector<Writer> given(static_cast<std::size_t>(ranks));
    for (std::int64_t r = 0; r < ranks; ++r) {
      given[static_cast<std::size_t>(r)]
          .add(r)
          .add(ranks)
          .add(size.in)
          .add(size.hidden)
          .add(t.first)
          .add(t.bias)
          .add(size.hidden)
          .add(size.out)
          .add(t.second)
          .add(t.last_bias)
          .add(size.batch)
          .add(size.in)
          .add(t.x)
          .add(size.batch)
          .add(size.out)
          .add(t.dy);
    }
    const std::string what = fmt::format("{} rank{}, batch {}, {} to {} to {} features", ranks, ranks == 1 ? "" : "s", size.batch,
                                         size.in, size.hidden, size.out);
    session.ask_ranks(what, given, [&](std::vector<Reader>& answers, const MessageLog& log) {
      const Wanted wanted = on_one_device(size, t);
      std::string wrong_part, wrong_y, wrong_x, wrong_gradients;
      for (std::size_t r = 0; r < answers.size(); ++r) {
        const Answered part = read_layers(answers[r]);
        const std::vector<float> y = answers[r].floats();
        const Answered gradient = read_layers(answers[r]);
        const std::vector<float> dx = answers[r].floats();
        const auto keep = [](std::string& flaw, const std::string& now) { flaw = flaw.empty() ? now : flaw; };
        keep(wrong_part, flaw_in_part("", r, part, size, t.first, t.bias, t.second, t.last_bias));
        keep(wrong_y, flaw_in("y", r, y, wanted.y));
        keep(wrong_gradients,
             flaw_in_part("the gradient of ", r, gradient, size, wanted.first, wanted.bias, wanted.second, wanted.last_bias));
        keep(wrong_x, flaw_in("the gradient of x", r, dx, wanted.x));
      }
      const auto in_case = [&](const std::string& flaw) { return flaw.empty() ? "" : session.in_case() + " " + flaw; };
      divided.judge(in_case(wrong_part));
      // Only what is computed from parts counts.
      forward.judge(in_case(wrong_part.empty() ? wrong_y : wrong_part));
      gradient_x.judge(in_case(wrong_part.empty() ? wrong_x : wrong_part));
      gradients.judge(in_case(wrong_part.empty() ? wrong_gradients : wrong_part));
      const std::vector<std::size_t> needed{wanted.y.size(), wanted.x.size()};
      std::string many;
      if (ranks > 1 && (log.all_reduces != needed || !log.messages.empty())) {
        std::string sizes;
        for (const std::size_t one : log.all_reduces) {
          sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", one);
        }
        many = fmt::format("there were {} all_reduces{} and {} messages, and one of {} and one of {} values are needed",
                           log.all_reduces.size(), sizes.empty() ? "" : " (of " + sizes + " values)", log.messages.size(),
                           needed[0], needed[1]);
      }
      messages.judge(in_case(!wrong_y.empty() ? wrong_y : !wrong_x.empty() ? wrong_x : many));
    });
  }
}

}  // namespace baton::exercise
