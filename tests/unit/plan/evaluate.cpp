#include "unit/plan/evaluate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "baton/op/loss_scale.h"

namespace baton::plan::test {
namespace {

using Numbers = std::vector<double>;

/// In [-1, 1), by what it is the value of.
double drawn(std::uint64_t what, std::uint64_t which, std::uint64_t index) {
  std::uint64_t x = what * 0x9e3779b97f4a7c15ULL + which * 0xbf58476d1ce4e5b9ULL + index * 0x94d049bb133111ebULL + 1;
  for (int i = 0; i < 3; ++i) {
    x ^= x >> 31;
    x *= 0xd6e8feb86659fd93ULL;
  }
  return static_cast<double>(x >> 11) / static_cast<double>(1ULL << 52) - 1;
}

/// Where an element of a part of a parameter lies in the whole of it.
std::int64_t index_in_whole(const ParameterPart& part, std::size_t i) {
  std::int64_t behind = 1;
  for (std::size_t d = part.axis + 1; d < part.whole.rank(); ++d) {
    behind *= part.whole[d];
  }
  const std::int64_t own = (part.end - part.begin) * behind;
  const std::int64_t at = static_cast<std::int64_t>(i) + part.piece_begin;
  return at / own * part.whole[part.axis] * behind + part.begin * behind + at % own;
}

/// How many integers a buffer of ids or labels tells apart.
std::int64_t integers_of(const Plan& plan, const BatchRows& rows) {
  for (const Graph::Node& node : plan.graph().nodes) {
    if (std::holds_alternative<op::Embed>(node.op) && node.reads[0] == rows.value) {
      for (const Buffer& buffer : plan.buffers()) {
        const auto* part = std::get_if<ParameterPart>(&buffer.content);
        if (part != nullptr && part->ordinal == node.parameters[0]) {
          return part->whole[0];
        }
      }
    }
    if (std::holds_alternative<op::CrossEntropy>(node.op) && node.reads[1] == rows.value) {
      return plan.graph().values[node.reads[0].index()].shape.last();
    }
  }
  return 1;
}

Numbers initial(const Plan& plan, const Buffer& buffer) {
  const auto count = static_cast<std::size_t>(buffer.shape.elements());
  Numbers values(count, 0);
  if (!buffer.persistent) {
    return values;
  }
  if (const auto* part = std::get_if<ParameterPart>(&buffer.content)) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto index = static_cast<std::uint64_t>(index_in_whole(*part, i));
      values[i] = buffer.role == Role::parameter ? drawn(1, part->ordinal, index)
                                                 : 0.2 + 0.1 * drawn(2 + part->slot, part->ordinal, index);
    }
  } else if (const auto* rows = std::get_if<BatchRows>(&buffer.content)) {
    const std::int64_t samples = rows->end - rows->begin;
    const std::int64_t positions = rows->axis == 0 ? 1 : buffer.shape[0];
    const std::int64_t length = buffer.shape.elements() / (samples * positions);
    const auto integers = static_cast<double>(integers_of(plan, *rows));
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t row = rows->begin + at / length % samples;
      const std::int64_t element = (rows->first + at / length / samples) * length + at % length;
      const double value = drawn(buffer.role == Role::input ? 7 : 8, static_cast<std::uint64_t>(row),
                                 static_cast<std::uint64_t>(element));
      values[i] = buffer.dtype == DType::i32 ? std::floor((value + 1) / 2 * integers) : value;
    }
  } else if (const auto* scaler = std::get_if<LossScaler>(&buffer.content)) {
    values = {scaler->initial, 0, 0, 5};
  }
  return values;
}

class Machine {
 public:
  explicit Machine(const Plan& plan) : plan_(plan) {
    for (const Buffer& buffer : plan.buffers()) {
      at_.push_back(initial(plan, buffer));
    }
  }

  std::vector<Numbers> run(const Ordering& ordering) {
    std::vector<bool> met(plan_.meeting_count(), false);
    for (const TaskId id : ordering.sequence) {
      const Task& task = plan_[id];
      if (const MeetingId meeting = meeting_of(task); meeting.valid()) {
        if (!met[meeting.index()]) {
          met[meeting.index()] = true;
          meet(meeting);
        }
      } else if (const auto* compute = std::get_if<Compute>(&task.action)) {
        task_ = &task;
        std::visit([&](const auto& op) { (*this)(op); }, compute->op);
        copy(task);
      } else if (const auto* update = std::get_if<Update>(&task.action)) {
        step(task, *update);
      }
    }
    return std::move(at_);
  }

  // ---- ops: one function each, which reads `read(i)` and sets `write(i)`; `r(i)` is the shape of what is read

  void operator()(const op::Linear& o) {
    const auto [rows, in, out] = extents(r(0), r(1), o.out_heads);
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t k = 0; k < out; ++k) {
        double sum = o.partial || o.no_bias ? 0 : read(2)[u(k)];
        for (std::int64_t i = 0; i < in; ++i) {
          sum += read(0)[u(n * in + i)] * read(1)[u(k * in + i)];
        }
        write(0)[u(n * out + k)] = o.relu ? std::max(0.0, sum) : sum;
      }
    }
  }
  void operator()(const op::LinearBackwardInput& o) {
    const auto [_, in, out] = extents(r(0), r(1), o.out_heads);
    const std::int64_t rows = r(0).elements() / out;
    Numbers result(u(rows * in), 0);
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t i = 0; i < in; ++i) {
        for (std::int64_t k = 0; k < out; ++k) {
          result[u(n * in + i)] += read(0)[u(n * out + k)] * read(1)[u(k * in + i)];
        }
        if (o.mask && read(2)[u(n * in + i)] <= 0) {
          result[u(n * in + i)] = 0;
        }
        if (o.gelu) {
          const auto [share, slope] = normal_share(read(2)[u(n * in + i)], true);
          result[u(n * in + i)] *= share + read(2)[u(n * in + i)] * slope;
        }
      }
    }
    write(0) = with_term(o.adds, result);
  }
  void operator()(const op::LinearBackwardWeight& o) {
    const auto [rows, in, out] = extents(r(0), plan_[task_->writes[0]].shape, o.out_heads);
    Numbers weight(u(in * out), 0);
    Numbers bias(u(out), 0);
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t k = 0; k < out; ++k) {
        bias[u(k)] += read(1)[u(n * out + k)];
        for (std::int64_t i = 0; i < in; ++i) {
          weight[u(k * in + i)] += read(1)[u(n * out + k)] * read(0)[u(n * in + i)];
        }
      }
    }
    give(0, weight, o.accumulate, o.sgd_rate);
    if (!o.partial) {
      give(1, bias, o.accumulate, o.sgd_rate);
    }
  }
  void operator()(const op::Relu&) {
    for (std::size_t i = 0; i < read(0).size(); ++i) {
      write(0)[i] = std::max(0.0, read(0)[i]);
    }
  }
  void operator()(const op::ReluBackward&) {
    for (std::size_t i = 0; i < read(0).size(); ++i) {
      write(0)[i] = read(1)[i] > 0 ? read(0)[i] : 0;
    }
  }
  void operator()(const op::MeanSquaredError& o) {
    const std::size_t rows = write(0).size();
    const std::size_t features = read(0).size() / rows;
    const auto elements = static_cast<double>(o.elements);
    for (std::size_t n = 0; n < rows; ++n) {
      write(0)[n] = 0;
      for (std::size_t i = n * features; i < (n + 1) * features; ++i) {
        const double difference = read(0)[i] - read(1)[i];
        write(0)[n] += difference * difference / elements;
        write(1)[i] = 2 * difference / elements * (o.scaled ? read(2)[0] : 1);
      }
    }
  }
  void operator()(const op::Gelu& o) {
    for (std::size_t i = 0; i < read(0).size(); ++i) {
      write(0)[i] = read(0)[i] * normal_share(read(0)[i], o.tanh).first;
    }
  }
  void operator()(const op::GeluBackward& o) {
    for (std::size_t i = 0; i < read(0).size(); ++i) {
      const double x = read(1)[i];
      const auto [share, slope] = normal_share(x, o.tanh);
      write(0)[i] = read(0)[i] * (share + x * slope);
    }
  }
  /// What a norm normalizes: an operand, or the sum of two, which it writes.
  const Numbers& rows_of_norm(bool sums) {
    if (sums) {
      for (std::size_t i = 0; i < read(0).size(); ++i) {
        write(1)[i] = read(0)[i] + read(1)[i];
      }
    }
    return sums ? write(1) : read(0);
  }
  void operator()(const op::LayerNorm& o) {
    const Numbers scaled = normalized(rows_of_norm(o.sums), r(0).last(), o.epsilon).first;
    const std::size_t gain = o.sums ? 2 : 1;
    for (std::size_t i = 0; i < scaled.size(); ++i) {
      const std::size_t c = i % u(r(0).last());
      write(0)[i] = scaled[i] * read(gain)[c] + read(gain + 1)[c];
    }
  }
  void operator()(const op::LayerNormBackwardInput& o) {
    const std::size_t width = u(r(0).last());
    const auto [scaled, factors] = normalized(read(1), r(0).last(), o.epsilon);
    Numbers result(scaled.size(), 0);
    for (std::size_t n = 0; n < factors.size(); ++n) {
      double mean = 0;
      double slope = 0;
      for (std::size_t c = 0; c < width; ++c) {
        const double d = read(0)[n * width + c] * read(2)[c];
        mean += d / static_cast<double>(width);
        slope += d * scaled[n * width + c] / static_cast<double>(width);
      }
      for (std::size_t c = 0; c < width; ++c) {
        result[n * width + c] = factors[n] * (read(0)[n * width + c] * read(2)[c] - mean - slope * scaled[n * width + c]);
      }
    }
    write(0) = with_term(o.adds, result);
  }
  void operator()(const op::LayerNormBackwardWeight& o) {
    const Numbers scaled = normalized(read(0), r(0).last(), o.epsilon).first;
    Numbers gain(write(0).size(), 0);
    Numbers bias(gain.size(), 0);
    for (std::size_t i = 0; i < scaled.size(); ++i) {
      gain[i % gain.size()] += read(1)[i] * scaled[i];
      bias[i % gain.size()] += read(1)[i];
    }
    give(0, gain, o.accumulate, 0);
    give(1, bias, o.accumulate, 0);
  }
  void operator()(const op::RmsNorm& o) {
    const Numbers& x = rows_of_norm(o.sums);
    const Numbers factors = root_factors(x, r(0).last(), o.epsilon);
    for (std::size_t i = 0; i < x.size(); ++i) {
      write(0)[i] = x[i] * factors[i / u(r(0).last())] * read(o.sums ? 2 : 1)[i % u(r(0).last())];
    }
  }
  void operator()(const op::RmsNormBackwardInput& o) {
    const std::size_t width = u(r(0).last());
    const Numbers factors = root_factors(read(1), r(0).last(), o.epsilon);
    Numbers result(factors.size() * width, 0);
    for (std::size_t n = 0; n < factors.size(); ++n) {
      double slope = 0;
      for (std::size_t c = n * width; c < (n + 1) * width; ++c) {
        slope += read(0)[c] * read(2)[c - n * width] * read(1)[c] * factors[n] / static_cast<double>(width);
      }
      for (std::size_t c = n * width; c < (n + 1) * width; ++c) {
        result[c] = factors[n] * (read(0)[c] * read(2)[c - n * width] - read(1)[c] * factors[n] * slope);
      }
    }
    write(0) = with_term(o.adds, result);
  }
  void operator()(const op::RmsNormBackwardWeight& o) {
    const Numbers factors = root_factors(read(0), r(0).last(), o.epsilon);
    Numbers gain(write(0).size(), 0);
    for (std::size_t i = 0; i < read(0).size(); ++i) {
      gain[i % gain.size()] += read(1)[i] * read(0)[i] * factors[i / gain.size()];
    }
    give(0, gain, o.accumulate, 0);
  }
  void operator()(const op::SiluGate&) {
    for (std::size_t i = 0; i < read(0).size(); ++i) {
      write(0)[i] = read(0)[i] / (1 + std::exp(-read(0)[i])) * read(1)[i];
    }
  }
  void operator()(const op::SiluGateBackward&) {
    for (std::size_t i = 0; i < read(0).size(); ++i) {
      const double dy = read(0)[i];
      const double a = read(1)[i];
      const double b = read(2)[i];
      const double sigma = 1 / (1 + std::exp(-a));
      write(0)[i] = dy * b * sigma * (1 + a * (1 - sigma));
      write(1)[i] = dy * a * sigma;
    }
  }
  void operator()(const op::AddPositions& o) {
    const std::size_t width = u(r(0).last());
    for (std::size_t i = 0; i < read(0).size(); ++i) {
      const std::size_t position = i / (u(r(0)[1]) * width) + u(o.first);
      write(0)[i] = read(0)[i] + read(1)[position * width + i % width];
    }
  }
  void operator()(const op::AddPositionsBackward& o) {
    const std::size_t width = u(r(0).last());
    Numbers sum(write(0).size(), 0);
    for (std::size_t i = 0; i < read(0).size(); ++i) {
      sum[(i / (u(r(0)[1]) * width) + u(o.first)) * width + i % width] += read(0)[i];
    }
    give(0, sum, o.accumulate, 0);
  }
  void operator()(const op::Rotary& o) {
    const Numbers x = read(0);
    const std::size_t position = x.size() / u(r(0)[0]);  // elements of each
    const std::size_t half = u(o.head) / 2;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t feature = i % u(r(0).last()) % u(o.head);
      const std::size_t pair = feature % half;
      const std::size_t token = i / position + u(o.first);
      const double angle = static_cast<double>(token) *
                           std::pow(o.base, -2.0 * static_cast<double>(pair) / static_cast<double>(o.head)) * (o.backward ? -1 : 1);
      write(0)[i] = feature < half ? x[i] * std::cos(angle) - x[i + half] * std::sin(angle)
                                   : x[i] * std::cos(angle) + x[i - half] * std::sin(angle);
    }
  }
  void operator()(const op::Attention& o) {
    each_head(r(0), r(1), [&](const Head& head) {
      for (std::int64_t t = 0; t < head.positions; ++t) {
        Numbers scores;
        double sum = 0;
        for (std::int64_t s = 0; s < (o.causal ? t + 1 : head.positions); ++s) {
          scores.push_back(head.score(read(0), read(1), t, s));
          sum += std::exp(scores.back());
        }
        for (std::int64_t i = 0; i < head.width; ++i) {
          double value = 0;
          for (std::size_t s = 0; s < scores.size(); ++s) {
            value += std::exp(scores[s]) / sum * read(2)[head.key(static_cast<std::int64_t>(s), i)];
          }
          write(0)[head.query(t, i)] = value;
        }
        write(1)[head.statistic(t)] = std::log(sum);
      }
    });
  }
  void operator()(const op::AttentionBackward& o) {
    Numbers dq(read(1).size(), 0);
    Numbers dk(read(2).size(), 0);
    Numbers dv(read(3).size(), 0);
    each_head(r(1), r(2), [&](const Head& head) {
      for (std::int64_t t = 0; t < head.positions; ++t) {
        double along = 0;  // dO · O
        for (std::int64_t i = 0; i < head.width; ++i) {
          along += read(0)[head.query(t, i)] * read(4)[head.query(t, i)];
        }
        for (std::int64_t s = 0; s < (o.causal ? t + 1 : head.positions); ++s) {
          const double share = std::exp(head.score(read(1), read(2), t, s) - read(5)[head.statistic(t)]);
          double through = 0;  // dO · V
          for (std::int64_t i = 0; i < head.width; ++i) {
            through += read(0)[head.query(t, i)] * read(3)[head.key(s, i)];
            dv[head.key(s, i)] += share * read(0)[head.query(t, i)];
          }
          const double slope = share * (through - along) / std::sqrt(static_cast<double>(head.width));
          for (std::int64_t i = 0; i < head.width; ++i) {
            dq[head.query(t, i)] += slope * read(2)[head.key(s, i)];
            dk[head.key(s, i)] += slope * read(1)[head.query(t, i)];
          }
        }
      }
    });
    write(0) = dq;
    write(1) = dk;
    write(2) = dv;
  }
  void operator()(const op::Conv2d& o) {
    const Shape& y = plan_[task_->writes[0]].shape;
    for (std::size_t i = 0; i < write(0).size(); ++i) {
      write(0)[i] = o.no_bias ? 0 : read(2)[i / u(y[2] * y[3]) % u(y[1])];
    }
    each_tap(r(0), r(1), y, o.stride, o.padding,
             [&](std::size_t in, std::size_t tap, std::size_t out) { write(0)[out] += read(0)[in] * read(1)[tap]; });
  }
  void operator()(const op::Conv2dBackwardInput& o) {
    Numbers dx(write(0).size(), 0);
    each_tap(plan_[task_->writes[0]].shape, r(1), r(0), o.stride, o.padding,
             [&](std::size_t in, std::size_t tap, std::size_t out) { dx[in] += read(0)[out] * read(1)[tap]; });
    write(0) = dx;
  }
  void operator()(const op::Conv2dBackwardWeight& o) {
    Numbers weight(write(0).size(), 0);
    each_tap(r(0), plan_[task_->writes[0]].shape, r(1), o.stride, o.padding,
             [&](std::size_t in, std::size_t tap, std::size_t out) { weight[tap] += read(0)[in] * read(1)[out]; });
    give(0, weight, o.accumulate, 0);
    if (!o.no_bias) {
      Numbers bias(write(1).size(), 0);
      for (std::size_t i = 0; i < read(1).size(); ++i) {
        bias[i / u(r(1)[2] * r(1)[3]) % bias.size()] += read(1)[i];
      }
      give(1, bias, o.accumulate, 0);
    }
  }
  void operator()(const op::BatchNorm& o) {
    if (o.running) {
      const std::int64_t image = r(0)[2] * r(0)[3];
      for (std::size_t i = 0; i < read(0).size(); ++i) {
        const std::size_t c = i / u(image) % u(r(0)[1]);
        write(0)[i] = (read(0)[i] - read(3)[c]) / std::sqrt(read(4)[c] + o.epsilon) * read(1)[c] + read(2)[c];
      }
      return;
    }
    const std::vector<Population> populations = populations_of(read(0), r(0), o.group, o.epsilon);
    for (const Population& one : populations) {
      for (std::size_t k = 0; k < one.at.size(); ++k) {
        write(0)[one.at[k]] = one.scaled[k] * read(1)[one.channel] + read(2)[one.channel];
      }
    }
  }
  void operator()(const op::TrackMoments& o) {
    const Numbers x = read(0);
    const std::vector<Population> populations = populations_of(x, r(0), o.group, 0);
    for (const Population& one : populations) {
      const auto n = static_cast<double>(one.at.size());
      double sum = 0;
      double squares = 0;
      for (const std::size_t at : one.at) {
        sum += x[at];
        squares += x[at] * x[at];
      }
      const double variance = (squares - sum * sum / n) / std::max(1.0, n - 1);
      write(0)[one.channel] += o.momentum * (sum / n - write(0)[one.channel]);
      write(1)[one.channel] += o.momentum * (variance - write(1)[one.channel]);
    }
    write(2)[0] += static_cast<double>(populations.size()) / static_cast<double>(r(0)[1]);
  }
  void operator()(const op::BatchNormBackwardInput& o) {
    const Numbers dy = read(0);
    for (const Population& one : populations_of(read(1), r(1), o.group, o.epsilon)) {
      const auto n = static_cast<double>(one.at.size());
      double mean = 0;
      double slope = 0;
      for (std::size_t k = 0; k < one.at.size(); ++k) {
        mean += dy[one.at[k]] / n;
        slope += dy[one.at[k]] * one.scaled[k] / n;
      }
      for (std::size_t k = 0; k < one.at.size(); ++k) {
        write(0)[one.at[k]] = read(2)[one.channel] * one.factor * (dy[one.at[k]] - mean - slope * one.scaled[k]);
      }
    }
  }
  void operator()(const op::BatchNormBackwardWeight& o) {
    Numbers gain(write(0).size(), 0);
    Numbers bias(gain.size(), 0);
    for (const Population& one : populations_of(read(0), r(0), o.group, o.epsilon)) {
      for (std::size_t k = 0; k < one.at.size(); ++k) {
        gain[one.channel] += read(1)[one.at[k]] * one.scaled[k];
        bias[one.channel] += read(1)[one.at[k]];
      }
    }
    give(0, gain, o.accumulate, 0);
    give(1, bias, o.accumulate, 0);
  }
  void operator()(const op::MaxPool& o) {
    const Numbers x = read(0);
    const std::vector<std::size_t> from = largest_of(x, r(0), plan_[task_->writes[0]].shape, o.window, o.stride, o.padding);
    for (std::size_t i = 0; i < from.size(); ++i) {
      write(0)[i] = x[from[i]];
    }
  }
  void operator()(const op::MaxPoolBackward& o) {
    Numbers dx(write(0).size(), 0);
    const std::vector<std::size_t> from = largest_of(read(1), r(1), r(0), o.window, o.stride, o.padding);
    for (std::size_t i = 0; i < from.size(); ++i) {
      dx[from[i]] += read(0)[i];
    }
    write(0) = dx;
  }
  void operator()(const op::AveragePool&) {
    const std::size_t image = read(0).size() / write(0).size();
    Numbers sums(write(0).size(), 0);
    for (std::size_t i = 0; i < read(0).size(); ++i) {
      sums[i / image] += read(0)[i] / static_cast<double>(image);
    }
    write(0) = sums;
  }
  void operator()(const op::AveragePoolBackward&) {
    const std::size_t image = write(0).size() / read(0).size();
    for (std::size_t i = 0; i < write(0).size(); ++i) {
      write(0)[i] = read(0)[i / image] / static_cast<double>(image);
    }
  }
  void operator()(const op::Flatten&) { write(0) = Numbers(read(0)); }
  void operator()(const op::FlattenBackward&) { write(0) = Numbers(read(0)); }
  void operator()(const op::ImageToSequence& o) {
    const std::size_t places = u(r(0)[2] * r(0)[3]);
    const std::size_t position = read(0).size() / places;  // elements of each
    for (std::size_t i = 0; i < write(0).size(); ++i) {
      const std::size_t at = i / position + u(o.first);
      write(0)[i] = at == 0 ? read(1)[i % position % read(1).size()] : read(0)[i % position * places + at - 1];
    }
  }
  void operator()(const op::ImageToSequenceBackwardInput& o) {
    const std::size_t places = u(plan_[task_->writes[0]].shape[2] * plan_[task_->writes[0]].shape[3]);
    const std::size_t position = write(0).size() / places;
    for (std::size_t i = 0; i < write(0).size(); ++i) {
      const std::int64_t at = static_cast<std::int64_t>(i % places) + 1 - o.first;
      write(0)[i] = at >= 0 && at < r(0)[0] ? read(0)[u(at) * position + i / places] : 0;
    }
  }
  void operator()(const op::ImageToSequenceBackwardWeight& o) {
    Numbers sum(write(0).size(), 0);
    for (std::size_t i = 0; o.first == 0 && i < read(0).size() / u(r(0)[0]); ++i) {
      sum[i % sum.size()] += read(0)[i];
    }
    give(0, sum, o.accumulate, 0);
  }
  void operator()(const op::FirstPosition& o) {
    for (std::size_t i = 0; i < write(0).size(); ++i) {
      write(0)[i] = o.first == 0 ? read(0)[i] : 0;
    }
  }
  void operator()(const op::FirstPositionBackward& o) {
    for (std::size_t i = 0; i < write(0).size(); ++i) {
      write(0)[i] = o.first == 0 && i < read(0).size() ? read(0)[i] : 0;
    }
  }
  void operator()(const op::Transpose&) {
    const std::size_t rows = u(r(0)[1]);
    const std::size_t size = read(0).size() / u(r(0)[0]);
    for (std::size_t i = 0; i < read(0).size(); ++i) {
      const std::size_t within = i % size;
      write(0)[i - within + within % (size / rows) * rows + within / (size / rows)] = read(0)[i];
    }
  }
  void operator()(const op::Embed& o) {
    const std::size_t width = u(r(1)[1]);
    for (std::size_t n = 0; n < read(0).size(); ++n) {
      const std::int64_t row = static_cast<std::int64_t>(read(0)[n]) - o.first;
      for (std::size_t c = 0; c < width; ++c) {
        write(0)[n * width + c] = row >= 0 && row < r(1)[0] ? read(1)[u(row) * width + c] : 0;
      }
    }
  }
  void operator()(const op::EmbedBackward& o) {
    const std::size_t width = u(r(1).last());
    Numbers sum(write(0).size(), 0);
    for (std::size_t n = 0; n < read(0).size(); ++n) {
      const std::int64_t row = static_cast<std::int64_t>(read(0)[n]) - o.first;
      for (std::size_t c = 0; row >= 0 && u(row) * width < sum.size() && c < width; ++c) {
        sum[u(row) * width + c] += read(1)[n * width + c];
      }
    }
    give(0, sum, o.accumulate, 0);
  }
  void operator()(const op::CrossEntropyTerms& o) {
    const std::size_t classes = u(r(0).last());
    for (std::size_t n = 0; n < read(1).size(); ++n) {
      const double* y = read(0).data() + n * classes;
      const double largest = *std::max_element(y, y + classes);
      double sum = 0;
      double score = 0;
      for (std::size_t c = 0; c < classes; ++c) {
        sum += std::exp(y[c] - largest);
        score += y[c] * wanted(c, read(1)[n] - static_cast<double>(o.first), o.smoothing, o.of);
      }
      write(0)[3 * n] = largest;
      write(0)[3 * n + 1] = sum;
      write(0)[3 * n + 2] = score;
    }
  }
  void operator()(const op::CrossEntropy& o) {
    const std::size_t rows = write(0).size();
    const std::size_t classes = read(0).size() / rows;
    const double scale = o.scaled ? read(task_->reads.size() - 1)[0] : 1;
    for (std::size_t n = 0; n < rows; ++n) {
      const double* y = read(0).data() + n * classes;
      const double label = read(1)[n] - static_cast<double>(o.first);
      const std::int64_t of = o.of > 0 ? o.of : static_cast<std::int64_t>(classes);
      double sum = 0;
      double score = 0;
      for (std::size_t part = 0; part < u(o.parts); ++part) {
        const double* terms = read(2).data() + 3 * (part * rows + n);
        sum += terms[1] * std::exp(terms[0]);
        score += terms[2];
      }
      for (std::size_t c = 0; o.parts == 0 && c < classes; ++c) {
        sum += std::exp(y[c]);
        score += y[c] * wanted(c, label, o.smoothing, of);
      }
      write(0)[n] = (std::log(sum) - score) / static_cast<double>(o.rows);
      for (std::size_t c = 0; c < classes; ++c) {
        write(1)[n * classes + c] = (std::exp(y[c]) / sum - wanted(c, label, o.smoothing, of)) / static_cast<double>(o.rows) *
                                    scale;
      }
    }
  }
  void operator()(const op::Add&) {
    Numbers sum = read(0);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += read(1)[i];
    }
    write(0) = sum;
  }
  void operator()(const op::AddBias&) {
    Numbers sum = read(0);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += read(1)[i % read(1).size()];
    }
    write(0) = sum;
  }
  void operator()(const op::AddBiasBackward& o) {
    Numbers sum(write(0).size(), 0);
    for (std::size_t i = 0; i < read(0).size(); ++i) {
      sum[i % sum.size()] += read(0)[i];
    }
    give(0, sum, o.accumulate, 0);
  }
  void operator()(const op::Cast&) { write(0) = Numbers(read(0)); }
  void operator()(const op::CheckFinite&) {
    double count = 0;
    for (std::size_t i = 0; i < task_->reads.size(); ++i) {
      for (const double value : read(i)) {
        count += std::isfinite(value) ? 0 : 1;
      }
    }
    write(0)[0] = count;
  }
  void operator()(const op::SquaredSum&) {
    double sum = 0;
    for (std::size_t i = 0; i < task_->reads.size(); ++i) {
      for (const double value : read(i)) {
        sum += value * value;
      }
    }
    write(0)[0] = sum;
  }
  void operator()(const op::Dropout& o) {
    const op::DropoutMask mask(o.rate, o.layer, o.seed, 1);
    const op::ElementPlaces places = places_of(plan_, task_->writes[0]);
    Numbers kept = read(0);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const std::int64_t place = places.of(static_cast<std::int64_t>(i));
      kept[i] = mask.drops(mask.words(place), place) ? 0 : kept[i] / (1 - o.rate);
    }
    write(0) = kept;
  }
  void operator()(const op::AdjustScale& o) {
    const op::ScaleState state{static_cast<float>(read(1)[0]), static_cast<float>(read(1)[1]), static_cast<float>(read(1)[2]),
                               static_cast<float>(read(1)[3])};
    const op::ScaleState next = op::adjusted(state, read(0)[0] == 0, o.growth_interval);
    write(0) = {next.scale, next.good_steps, next.skipped_steps, next.steps};
  }
  template <typename Other>
  void operator()(const Other&) {
    ADD_FAILURE() << "the evaluator does not know " << verb(*task_);
  }

 private:
  /// The share of a class that a label asks for.
  static double wanted(std::size_t c, double label, double smoothing, std::int64_t classes) {
    return (static_cast<double>(c) == label ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
  }

  /// The share of a normal distribution below x, and its slope; with `tanh` the approximation of both.
  static std::pair<double, double> normal_share(double x, bool tanh) {
    const double pi = std::acos(-1.0);
    if (!tanh) {
      return {std::erfc(-x / std::sqrt(2.0)) / 2, std::exp(-x * x / 2) / std::sqrt(2 * pi)};
    }
    const double t = std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x));
    return {(1 + t) / 2, (1 - t * t) / 2 * std::sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x)};
  }
  /// Calls `visit(element of x, of W, of y)` for each product of a convolution. Images are (sample, channel, row, column).
  template <typename Visit>
  static void each_tap(const Shape& x, const Shape& w, const Shape& y, std::int64_t stride, std::int64_t padding, Visit visit) {
    for (std::int64_t out = 0; out < y.elements(); ++out) {
      const std::int64_t column = out % y[3];
      const std::int64_t row = out / y[3] % y[2];
      const std::int64_t channel = out / (y[3] * y[2]) % y[1];
      const std::int64_t sample = out / (y[3] * y[2] * y[1]);
      for (std::int64_t tap = 0; tap < w[1] * w[2] * w[3]; ++tap) {
        const std::int64_t at_row = row * stride - padding + tap / w[3] % w[2];
        const std::int64_t at_column = column * stride - padding + tap % w[3];
        const std::int64_t in_channel = tap / (w[2] * w[3]);
        if (at_row >= 0 && at_row < x[2] && at_column >= 0 && at_column < x[3]) {
          visit(u(((sample * x[1] + in_channel) * x[2] + at_row) * x[3] + at_column), u(channel * w[1] * w[2] * w[3] + tap),
                u(out));
        }
      }
    }
  }

  /// By element of y: where the largest of its window lies in x, the first of several.
  static std::vector<std::size_t> largest_of(const Numbers& x, const Shape& in, const Shape& y, std::int64_t window,
                                             std::int64_t stride, std::int64_t padding) {
    std::vector<std::optional<std::size_t>> found(u(y.elements()));
    // Each channel by itself: a channel of a sample is an image of one channel.
    const Shape images{in[0] * in[1], 1, in[2], in[3]};
    const Shape places{y[0] * y[1], 1, y[2], y[3]};
    each_tap(images, Shape{1, 1, window, window}, places, stride, padding, [&](std::size_t from, std::size_t, std::size_t to) {
      if (!found[to] || x[from] > x[*found[to]]) {
        found[to] = from;
      }
    });
    std::vector<std::size_t> list;
    for (const std::optional<std::size_t>& one : found) {
      list.push_back(one.value_or(0));
    }
    return list;
  }

  /// What a batch norm takes together: a channel of some samples.
  struct Population {
    std::size_t channel;
    std::vector<std::size_t> at;
    Numbers scaled;
    double factor;
  };
  static std::vector<Population> populations_of(const Numbers& x, const Shape& shape, std::int64_t group, double epsilon) {
    const std::int64_t together = group > 0 ? group : shape[0];
    const std::int64_t image = shape[2] * shape[3];
    std::vector<Population> list;
    for (std::int64_t first = 0; first < shape[0]; first += together) {
      for (std::int64_t channel = 0; channel < shape[1]; ++channel) {
        Population& one = list.emplace_back(Population{u(channel), {}, {}, 0});
        for (std::int64_t sample = first; sample < std::min(first + together, shape[0]); ++sample) {
          for (std::int64_t i = 0; i < image; ++i) {
            one.at.push_back(u((sample * shape[1] + channel) * image + i));
            one.scaled.push_back(x[one.at.back()]);
          }
        }
        const auto [scaled, factors] = normalized(one.scaled, static_cast<std::int64_t>(one.scaled.size()), epsilon);
        one.scaled = scaled;
        one.factor = factors[0];
      }
    }
    return list;
  }
  static Numbers root_factors(const Numbers& x, std::int64_t width, double epsilon) {
    Numbers factors;
    for (std::size_t row = 0; row < x.size(); row += u(width)) {
      double mean = 0;
      for (std::size_t c = row; c < row + u(width); ++c) {
        mean += x[c] * x[c] / static_cast<double>(width);
      }
      factors.push_back(1 / std::sqrt(mean + epsilon));
    }
    return factors;
  }

  /// One head of the queries of one sample, and the head of keys and values of its group. Axes are (position, sample, group,
  /// feature).
  struct Head {
    std::int64_t positions, samples, groups, shared, width;  // `shared` heads of queries have the same keys
    std::int64_t sample, group, number;

    std::size_t query(std::int64_t t, std::int64_t i) const {
      return u(((t * samples + sample) * groups + group) * shared * width + number * width + i);
    }
    std::size_t key(std::int64_t s, std::int64_t i) const { return u(((s * samples + sample) * groups + group) * width + i); }
    std::size_t statistic(std::int64_t t) const { return u(((t * samples + sample) * groups + group) * shared + number); }
    double score(const Numbers& q, const Numbers& k, std::int64_t t, std::int64_t s) const {
      double sum = 0;
      for (std::int64_t i = 0; i < width; ++i) {
        sum += q[query(t, i)] * k[key(s, i)];
      }
      return sum / std::sqrt(static_cast<double>(width));
    }
  };
  template <typename Visit>
  static void each_head(const Shape& q, const Shape& k, Visit visit) {
    for (std::int64_t sample = 0; sample < q[1]; ++sample) {
      for (std::int64_t group = 0; group < q[2]; ++group) {
        for (std::int64_t number = 0; number < q[3] / k[3]; ++number) {
          visit(Head{q[0], q[1], q[2], q[3] / k[3], k[3], sample, group, number});
        }
      }
    }
  }
  /// Rows less their mean, times a factor that makes their variance 1; and the factors, one per row.
  static std::pair<Numbers, Numbers> normalized(const Numbers& x, std::int64_t width, double epsilon) {
    const auto n = static_cast<double>(width);
    Numbers scaled = x;
    Numbers factors;
    for (std::size_t row = 0; row < x.size(); row += u(width)) {
      double mean = 0;
      double variance = 0;
      for (std::size_t c = row; c < row + u(width); ++c) {
        mean += x[c] / n;
      }
      for (std::size_t c = row; c < row + u(width); ++c) {
        variance += (x[c] - mean) * (x[c] - mean) / n;
      }
      factors.push_back(1 / std::sqrt(variance + epsilon));
      for (std::size_t c = row; c < row + u(width); ++c) {
        scaled[c] = (x[c] - mean) * factors.back();
      }
    }
    return {scaled, factors};
  }
  static std::size_t u(std::int64_t i) { return static_cast<std::size_t>(i); }
  const Shape& r(std::size_t i) const { return plan_[task_->reads[i]].shape; }
  Numbers& read(std::size_t i) { return at_[task_->reads[i].index()]; }
  Numbers& write(std::size_t i) { return at_[task_->writes[i].index()]; }
  /// Rows, inputs and outputs of a Linear; heads of either are one with their features.
  static std::tuple<std::int64_t, std::int64_t, std::int64_t> extents(const Shape& x, const Shape& weight, bool out_heads) {
    const std::int64_t out = weight[0] * (out_heads ? weight[1] : 1);
    const std::int64_t in = weight.elements() / out;
    return {x.elements() / in, in, out};
  }

  /// The result of an op, with the term that it reads last added to it if it adds one.
  Numbers with_term(bool adds, Numbers result) {
    for (std::size_t e = 0; adds && e < result.size(); ++e) {
      result[e] += at_[task_->reads.back().index()][e];
    }
    return result;
  }

  void copy(const Task& task) {
    const std::size_t copies = copy_count(task);
    for (std::size_t i = 0; i < copies; ++i) {
      at_[task.writes[task.writes.size() - copies + i].index()] = at_[task.writes[i].index()];
    }
  }

  void give(std::size_t i, const Numbers& result, bool adds, double rate) {
    Numbers& target = write(i);
    for (std::size_t e = 0; e < target.size(); ++e) {
      target[e] = rate > 0 ? target[e] - rate * result[e] : adds ? target[e] + result[e] : result[e];
    }
  }

  void step(const Task& task, const Update& update) {
    const std::size_t slots = op::state_slots(update.optimizer);
    const std::size_t n = updated_count(task);
    double scale = 1;
    if (update.scaled) {
      if (at_[task.reads[task.reads.size() - 2].index()][0] != 0) {
        return;
      }
      scale = at_[task.reads.back().index()][0];
    }
    const double clip = op::clip_of(update.optimizer);
    const double norm = clip > 0 ? std::sqrt(at_[task.reads[task.reads.size() - (update.scaled ? 3 : 1)].index()][0]) / scale : 0;
    const double shortened = norm > clip ? clip / norm : 1;
    for (std::size_t p = 0; p < n; ++p) {
      const Numbers& gradient = at_[task.reads[p].index()];
      Numbers& parameter = at_[task.writes[p].index()];
      const auto* part = std::get_if<ParameterPart>(&plan_[task.writes[p]].content);
      const auto decay = [&](const auto& optimizer) {
        return optimizer.decay_matrices && part->whole.rank() == 1 ? 0 : optimizer.weight_decay;
      };
      for (std::size_t e = 0; e < parameter.size(); ++e) {
        double g = gradient[e] / scale * shortened;
        double& w = parameter[e];
        if (const auto* sgd = std::get_if<op::Sgd>(&update.optimizer)) {
          g += decay(*sgd) * w;
          if (slots > 0) {
            double& velocity = at_[task.writes[n + p * slots].index()][e];
            velocity = sgd->momentum * velocity + g;
            g = velocity;
          }
          w -= sgd->rate * g;
        } else {
          const auto& adam = std::get<op::Adam>(update.optimizer);
          double& first = at_[task.writes[n + p * slots].index()][e];
          double& second = at_[task.writes[n + p * slots + 1].index()][e];
          if (adam.decoupled) {
            w -= adam.rate * decay(adam) * w;
          } else {
            g += decay(adam) * w;
          }
          first = adam.beta1 * first + (1 - adam.beta1) * g;
          second = adam.beta2 * second + (1 - adam.beta2) * g * g;
          w -= adam.rate * first / (std::sqrt(second) + adam.epsilon);
        }
      }
    }
    copy(task);
  }

  // ---- meetings

  void meet(MeetingId meeting) {
    const std::span<const TaskId> tasks = plan_.members(meeting);
    std::vector<const Task*> members(tasks.size());
    for (const TaskId id : tasks) {
      members[rank_of(plan_[id])] = &plan_[id];
    }
    const Task& first = *members[0];
    const auto* collective = std::get_if<Collective>(&first.action);
    if (collective == nullptr) {
      at_[members[1]->writes[0].index()] = Numbers(at_[first.reads[0].index()]);
      return;
    }
    const auto count = static_cast<std::uint32_t>(members.size());
    std::vector<std::size_t> next(members.size(), 0);
    const std::size_t slots = collective->kind == Move::all_gather ? first.writes.size() : payload(first).size();
    for (std::size_t s = 0; s < slots; ++s) {
      if (collective->kind == Move::broadcast) {
        for (std::size_t m = 1; m < members.size(); ++m) {
          at_[members[m]->writes[s].index()] = Numbers(at_[first.reads[s].index()]);
        }
        continue;
      }
      if (collective->kind == Move::all_gather) {
        Numbers whole(at_[first.writes[s].index()].size(), 0);
        for (std::uint32_t m = 0; m < count; ++m) {
          const Piece piece = piece_of(static_cast<std::int64_t>(whole.size()), m, count, collective->row);
          for (std::int64_t e = 0; e < piece.size(); ++e) {
            whole[u(piece.begin + e)] = at_[members[m]->reads[next[m]].index()][u(e)];
          }
          next[m] += piece.size() > 0 ? 1 : 0;
        }
        for (const Task* member : members) {
          at_[member->writes[s].index()] = whole;
        }
        continue;
      }
      Numbers sum(at_[first.reads[s].index()].size(), 0);
      for (const Task* member : members) {
        for (std::size_t e = 0; e < sum.size(); ++e) {
          sum[e] += at_[member->reads[s].index()][e];
        }
      }
      for (std::uint32_t m = 0; m < count; ++m) {
        if (collective->kind == Move::reduce_scatter) {
          const Piece piece = piece_of(static_cast<std::int64_t>(sum.size()), m, count, collective->row);
          for (std::int64_t e = 0; e < piece.size(); ++e) {
            double& target = at_[members[m]->writes[next[m]].index()][u(e)];
            target = sum[u(piece.begin + e)] + (collective->accumulate ? target : 0);
          }
          next[m] += piece.size() > 0 ? 1 : 0;
        } else if (collective->kind == Move::all_reduce || m == 0) {
          Numbers& target = at_[members[m]->writes[s].index()];
          for (std::size_t e = 0; e < sum.size(); ++e) {
            target[e] = collective->sgd_rate > 0 ? target[e] - collective->sgd_rate * sum[e] : sum[e];
          }
        }
      }
    }
  }

  const Plan& plan_;
  const Task* task_ = nullptr;
  std::vector<Numbers> at_;
};

}  // namespace

std::vector<std::vector<double>> evaluate(const Plan& plan, const Ordering& ordering) { return Machine(plan).run(ordering); }

namespace {

bool close(double a, double b) { return std::abs(a - b) <= 1e-9 * (1 + std::abs(b)); }

/// By name and index: what a plan leaves. `clash` is set to a name where two devices leave different numbers.
using Left = std::map<std::string, std::map<std::int64_t, double>>;
Left left(const Plan& plan, const std::vector<Numbers>& values, std::optional<std::string>& clash) {
  Left all;
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    const Buffer& buffer = plan.buffers()[b];
    const auto* part = std::get_if<ParameterPart>(&buffer.content);
    const auto* rows = std::get_if<BatchRows>(&buffer.content);
    const bool scaler = std::holds_alternative<LossScaler>(buffer.content);
    if (buffer.role == Role::statistic ||  // each replica keeps those of its own rows
        (!(buffer.role == Role::loss && rows != nullptr) && !(buffer.persistent && (part != nullptr || scaler)))) {
      continue;
    }
    const std::string name = part == nullptr ? std::string(scaler ? "loss scale" : "loss")
                                             : fmt::format("{} {} {}", to_text(buffer.role), part->name, part->slot);
    for (std::size_t i = 0; i < values[b].size(); ++i) {
      auto index = static_cast<std::int64_t>(i);
      if (part != nullptr) {
        index = index_in_whole(*part, i);
      } else if (rows != nullptr) {
        const std::int64_t samples = rows->end - rows->begin;
        index = (rows->first + index / samples) * 1000 + rows->begin + index % samples;
      }
      const auto [known, added] = all[name].try_emplace(index, values[b][i]);
      if (!added && !close(known->second, values[b][i])) {
        clash = fmt::format("devices hold {} and {} for {} at {}", known->second, values[b][i], name, index);
      }
    }
  }
  return all;
}

}  // namespace

std::optional<std::string> difference(const Plan& a, const std::vector<Numbers>& left_by_a, const Plan& b,
                                      const std::vector<Numbers>& left_by_b) {
  std::optional<std::string> found;
  const Left one = left(a, left_by_a, found);
  const Left other = left(b, left_by_b, found);
  for (const auto& [name, values] : other) {
    const auto same = one.find(name);
    if (same == one.end() || same->second.size() != values.size()) {
      return fmt::format("{} has {} of {} elements", name, same == one.end() ? 0 : same->second.size(), values.size());
    }
    for (const auto& [index, value] : values) {
      const auto at = same->second.find(index);
      if (at == same->second.end() || !close(at->second, value)) {
        return fmt::format("{} at {} is {} instead of {}", name, index, at == same->second.end() ? 0 : at->second, value);
      }
    }
  }
  return found;
}

bool same_result(const Plan& plan, const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  for (std::size_t i = 0; i < plan.buffers().size(); ++i) {
    const Buffer& buffer = plan.buffers()[i];
    if (buffer.role != Role::loss && !(buffer.persistent && buffer.role != Role::input && buffer.role != Role::target)) {
      continue;
    }
    for (std::size_t e = 0; e < a[i].size(); ++e) {
      if (!(std::abs(a[i][e] - b[i][e]) <= 1e-9 * (1 + std::abs(b[i][e])))) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace baton::plan::test
