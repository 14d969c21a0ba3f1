#include "baton/trace/chrome.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace baton::trace {
namespace {

using plan::Plan;
using plan::Task;

/// Microseconds with the nanoseconds after the point: exact.
std::string micros(Nanoseconds time) { return fmt::format("{}.{:03}", time.count / 1000, time.count % 1000); }

/// The text escaped for JSON, without quotes.
std::string in_json(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += code < 0x20 ? fmt::format("\\u{:04x}", code) : std::string(1, c);
  }
  return out;
}

std::string name_of(const Task& task) {
  return task.labels.block < 0 ? std::string(plan::verb(task)) : fmt::format("{} {}", plan::verb(task), task.labels.block);
}

/// By task, the thread of its lane that shows it: the first that is free when it begins. Streams of their own may overlap.
std::vector<std::size_t> threads_of(const Plan& plan, const StepTrace& step) {
  std::vector<std::size_t> threads(plan.tasks().size(), 0);
  for (std::size_t d = 0; d < plan.devices().size(); ++d) {
    for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
      const auto of_lane = plan.lane(DeviceId(d), static_cast<plan::Lane>(lane));
      std::vector<TaskId> tasks(of_lane.begin(), of_lane.end());
      const auto start = [&](TaskId task) { return step.events[task.index()].start; };
      std::stable_sort(tasks.begin(), tasks.end(), [&](TaskId a, TaskId b) { return start(a) < start(b); });
      std::vector<Nanoseconds> ends;
      for (const TaskId task : tasks) {
        const auto free = std::find_if(ends.begin(), ends.end(), [&](Nanoseconds end) { return end <= start(task); });
        threads[task.index()] = static_cast<std::size_t>(free - ends.begin());
        if (free == ends.end()) {
          ends.emplace_back();
        }
        ends[threads[task.index()]] = step.events[task.index()].end;
      }
    }
  }
  return threads;
}

}  // namespace

std::string to_chrome_json(const Plan& plan, const Trace& trace) {
  std::string out = fmt::format("{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"origin\":\"{}\"}},\"traceEvents\":[",
                                to_text(trace.origin));
  auto end = std::back_inserter(out);
  std::vector<std::vector<std::size_t>> threads;                    // by step
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> most;  // by device and lane: the most threads
  for (const StepTrace& step : trace.steps) {
    threads.push_back(threads_of(plan, step));
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      std::size_t& count = most[{plan.tasks()[t].device.index(), static_cast<std::size_t>(plan.tasks()[t].lane)}];
      count = std::max(count, threads.back()[t]);
    }
  }
  for (std::size_t d = 0; d < plan.devices().size(); ++d) {
    fmt::format_to(end, "{}\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"tid\":0,\"args\":{{\"name\":\"{}\"}}}}",
                   d == 0 ? "" : ",", d, in_json(plan.devices()[d]));
    for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
      for (std::size_t k = 0; !plan.lane(DeviceId(d), static_cast<plan::Lane>(lane)).empty() && k <= most[{d, lane}]; ++k) {
        fmt::format_to(end, ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":\"{}{}\"}}}}", d,
                       lane + k * plan::lane_count, plan::to_text(static_cast<plan::Lane>(lane)),
                       k == 0 ? "" : fmt::format(" {}", k + 1));
      }
    }
  }
  Nanoseconds origin;
  std::size_t flows = 0;
  for (std::size_t s = 0; s < trace.steps.size(); ++s) {
    const StepTrace& step = trace.steps[s];
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      const Task& task = plan.tasks()[t];
      const Event& event = step.events[t];
      const std::size_t tid = static_cast<std::size_t>(task.lane) + threads[s][t] * plan::lane_count;
      fmt::format_to(end,
                     ",\n{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},"
                     "\"args\":{{\"step\":{},\"task\":{},\"sent_bytes\":{},\"received_bytes\":{}}}}}",
                     name_of(task), plan::to_text(task.labels.phase), task.device.value, tid, micros(origin + event.start),
                     micros(event.end - event.start), s, t, event.sent.count, event.received.count);
      if (const auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
        const bool sends = transfer->end == plan::Transfer::End::send;
        // Arrows are bound to the event they start or end in, so they point into it.
        fmt::format_to(
            end, ",\n{{\"ph\":\"{}\",\"name\":\"transfer\",\"cat\":\"transfer\",\"id\":{},\"pid\":{},\"tid\":{},\"ts\":{}{}}}",
            sends ? 's' : 'f', flows + transfer->meeting.index(), task.device.value, tid,
            micros(origin + (sends ? event.start : event.end)), sends ? "" : ",\"bp\":\"e\"");
      }
    }
    flows += plan.meeting_count();
    origin += step.duration;
  }
  return out + "\n]}\n";
}

}  // namespace baton::trace
