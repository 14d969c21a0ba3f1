#include "unit/plan/evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>

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

Numbers initial(const Buffer& buffer) {
  const auto count = static_cast<std::size_t>(buffer.shape.elements());
  Numbers values(count, 0);
  if (!buffer.persistent) {
    return values;
  }
  if (const auto* part = std::get_if<ParameterPart>(&buffer.content)) {
    std::int64_t behind = 1;
    for (std::size_t d = part->axis + 1; d < part->whole.rank(); ++d) {
      behind *= part->whole[d];
    }
    const std::int64_t own = (part->end - part->begin) * behind;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t at = static_cast<std::int64_t>(i) + part->piece_begin;
      const std::int64_t index = at / own * part->whole[part->axis] * behind + part->begin * behind + at % own;
      values[i] = buffer.role == Role::parameter
                      ? drawn(1, part->ordinal, static_cast<std::uint64_t>(index))
                      : 0.2 + 0.1 * drawn(2 + part->slot, part->ordinal, static_cast<std::uint64_t>(index));
    }
  } else if (const auto* rows = std::get_if<BatchRows>(&buffer.content)) {
    const std::int64_t samples = rows->end - rows->begin;
    const std::int64_t positions = rows->axis == 0 ? 1 : buffer.shape[0];
    const std::int64_t length = buffer.shape.elements() / (samples * positions);
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t row = rows->begin + at / length % samples;
      const std::int64_t element = (rows->first + at / length / samples) * length + at % length;
      const double value = drawn(buffer.role == Role::input ? 7 : 8, static_cast<std::uint64_t>(row),
                                 static_cast<std::uint64_t>(element));
      values[i] = buffer.dtype == DType::i32 ? (value < 0 ? 0 : 1) : value;
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
      at_.push_back(initial(buffer));
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
      } else if (const auto* update = std::get_if<Update>(&task.action)) {
        step(task, *update);
      }
    }
    return std::move(at_);
  }

  // ---- ops

  void operator()(const op::Linear& o) {
    const auto [rows, in, out] = extents(r(0), r(1));
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t k = 0; k < out; ++k) {
        double sum = o.partial ? 0 : read(2)[u(k)];
        for (std::int64_t i = 0; i < in; ++i) {
          sum += read(0)[u(n * in + i)] * read(1)[u(k * in + i)];
        }
        write(0)[u(n * out + k)] = o.relu ? std::max(0.0, sum) : sum;
      }
    }
  }
  void operator()(const op::LinearBackwardInput& o) {
    const auto [rows, out, in] = std::tuple{r(0).elements() / r(1)[0], r(1)[0], r(1)[1]};
    Numbers result(u(rows * in), 0);
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t i = 0; i < in; ++i) {
        for (std::int64_t k = 0; k < out; ++k) {
          result[u(n * in + i)] += read(0)[u(n * out + k)] * read(1)[u(k * in + i)];
        }
        if (o.mask && read(2)[u(n * in + i)] <= 0) {
          result[u(n * in + i)] = 0;
        }
      }
    }
    write(0) = result;
  }
  void operator()(const op::LinearBackwardWeight& o) {
    const std::int64_t in = r(0)[r(0).rank() - 1];
    const std::int64_t out = r(1)[r(1).rank() - 1];
    const std::int64_t rows = r(0).elements() / in;
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
  void operator()(const op::CrossEntropy& o) {
    const std::size_t rows = write(0).size();
    const std::size_t classes = read(0).size() / rows;
    for (std::size_t n = 0; n < rows; ++n) {
      double sum = 0;
      for (std::size_t c = 0; c < classes; ++c) {
        sum += std::exp(read(0)[n * classes + c]);
      }
      const auto label = static_cast<std::size_t>(read(1)[n]);
      write(0)[n] = (std::log(sum) - read(0)[n * classes + label]) / static_cast<double>(o.rows);
      for (std::size_t c = 0; c < classes; ++c) {
        write(1)[n * classes + c] = (std::exp(read(0)[n * classes + c]) / sum - (c == label ? 1 : 0)) /
                                    static_cast<double>(o.rows) * (o.scaled ? read(2)[0] : 1);
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
  static std::size_t u(std::int64_t i) { return static_cast<std::size_t>(i); }
  const Shape& r(std::size_t i) const { return plan_[task_->reads[i]].shape; }
  Numbers& read(std::size_t i) { return at_[task_->reads[i].index()]; }
  Numbers& write(std::size_t i) { return at_[task_->writes[i].index()]; }
  static std::tuple<std::int64_t, std::int64_t, std::int64_t> extents(const Shape& x, const Shape& weight) {
    return {x.elements() / weight[1], weight[1], weight[0]};
  }

  void give(std::size_t i, const Numbers& result, bool adds, double rate) {
    Numbers& target = write(i);
    for (std::size_t e = 0; e < target.size(); ++e) {
      target[e] = rate > 0 ? target[e] - rate * result[e] : adds ? target[e] + result[e] : result[e];
    }
  }

  void step(const Task& task, const Update& update) {
    const std::size_t slots = op::state_slots(update.optimizer);
    const std::size_t n = task.writes.size() / (1 + slots);
    double scale = 1;
    if (update.scaled) {
      if (at_[task.reads[task.reads.size() - 2].index()][0] != 0) {
        return;
      }
      scale = at_[task.reads.back().index()][0];
    }
    for (std::size_t p = 0; p < n; ++p) {
      const Numbers& gradient = at_[task.reads[p].index()];
      Numbers& parameter = at_[task.writes[p].index()];
      for (std::size_t e = 0; e < parameter.size(); ++e) {
        double g = gradient[e] / scale;
        double& w = parameter[e];
        if (const auto* sgd = std::get_if<op::Sgd>(&update.optimizer)) {
          g += sgd->weight_decay * w;
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
            w -= adam.rate * adam.weight_decay * w;
          } else {
            g += adam.weight_decay * w;
          }
          first = adam.beta1 * first + (1 - adam.beta1) * g;
          second = adam.beta2 * second + (1 - adam.beta2) * g * g;
          w -= adam.rate * first / (std::sqrt(second) + adam.epsilon);
        }
      }
    }
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
