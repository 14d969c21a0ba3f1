#include "baton/sheet/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "baton/base/text.h"
#include "baton/lab/rows.h"
#include "baton/sheet/escape.h"

namespace baton::sheet {
namespace {

using lab::Json;
using lab::Record;
namespace key = lab::key;
using Form = Mark::Form;
using Anchor = Mark::Anchor;

constexpr double text_height = 8.5;
constexpr double left_margin = 40;
constexpr double right_margin = 8;
constexpr double top_margin = 16;
constexpr double bottom_margin = 28;
constexpr double legend_line = 11;

/// Black, then blue, orange, green, purple and grey, of different lightness.
constexpr std::array<std::array<int, 3>, 6> palette{
    {{0, 0, 0}, {31, 87, 153}, {224, 130, 20}, {90, 160, 90}, {130, 80, 160}, {150, 150, 150}}};

int color_of(std::size_t series) { return static_cast<int>(1 + series % (palette.size() - 1)); }

std::optional<double> value_of(const Record& row, const std::string& column) {
  const std::optional<double> value = lab::number_in(row, column);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

/// The divisor of a format's numbers when they are shown, and the unit that they then have.
struct Unit {
  double scale = 1;
  std::string name;
};

Unit unit_for(lab::Format format, double largest) {
  switch (format) {
    case lab::Format::time:
      return largest >= 1e9 ? Unit{1e9, "s"} : largest >= 1e6 ? Unit{1e6, "ms"} : largest >= 1e3 ? Unit{1e3, "µs"} : Unit{1, "ns"};
    case lab::Format::bytes:
      return largest >= 0x1p30   ? Unit{0x1p30, "GiB"}
             : largest >= 0x1p20 ? Unit{0x1p20, "MiB"}
             : largest >= 0x1p10 ? Unit{0x1p10, "KiB"}
                                 : Unit{1, "bytes"};
    case lab::Format::percent:
      return {0.01, "%"};
    case lab::Format::flops:
      return largest >= 1e12 ? Unit{1e12, "TFLOP"} : Unit{1e9, "GFLOP"};
    default:
      return {1, ""};
  }
}

/// A round number of which about four make `extent`.
double tick_step(double extent) {
  const double rough = extent / 4;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double round : {1.0, 2.0, 2.5, 5.0}) {
    if (round * power >= rough) {
      return round * power;
    }
  }
  return 10 * power;
}

std::string tick_text(double value) { return fmt::format("{:.4g}", value); }

/// The approximate width of a text.
double text_width(const std::string& words) { return 4.4 * static_cast<double>(display_width(words)); }

/// A name in the legend with its mark and the gap after it.
double legend_width(const std::string& name) { return 24 + 4.9 * static_cast<double>(display_width(name)); }

/// The frame of a plot: where values lie in it, and the axis of y with its ticks.
class Frame {
 public:
  Frame(Picture& picture, const lab::Plot& plot, double lowest, double highest, std::size_t legend)
      : picture_(picture), unit_(unit_for(plot.y_format, highest)) {
    const std::vector<std::string> title = title_lines(plot, picture);
    below_title_ = legend_line * static_cast<double>(title.size() - 1);
    top_ = top_margin + below_title_ + legend_line * static_cast<double>(legend);
    picture.height = top_ + 95 + bottom_margin;
    bottom_ = picture.height - bottom_margin;
    right_ = picture.width - right_margin;
    low_ = std::min(0.0, lowest / unit_.scale);
    high_ = highest / unit_.scale;
    const double step = tick_step(high_ - low_ > 0 ? high_ - low_ : 1);
    high_ = std::ceil(high_ / step - 1e-6) * step;
    low_ = std::floor(low_ / step) * step;
    for (double tick = low_; tick <= high_ + step / 2; tick += step) {
      const double at = y(tick * unit_.scale);
      line(left_margin, at, right_, at, 5, true);
      text(left_margin - 3, at + 3, tick_text(std::abs(tick) < step / 1e6 ? 0 : tick), Anchor::right);
    }
    line(left_margin, top_, left_margin, bottom_);
    line(left_margin, bottom_, right_, bottom_);
    for (std::size_t i = 0; i < title.size(); ++i) {
      text(2, 9 + legend_line * static_cast<double>(i), title[i]);
    }
    text((left_margin + right_) / 2, picture.height - 4, plot.x_title + (plot.log_x ? " (logarithmic)" : ""), Anchor::middle);
  }

  double left() const { return left_margin; }
  double right() const { return right_; }
  double y(double value) const { return bottom_ - (value / unit_.scale - low_) / (high_ - low_) * (bottom_ - top_); }

  void line(double x, double from, double x2, double to, int color = 0, bool dashed = false) {
    picture_.marks.push_back({.kind = Form::line, .x = x, .y = from, .x2 = x2, .y2 = to, .color = color, .dashed = dashed});
  }
  void box(double x, double from, double x2, double to, int color) {
    picture_.marks.push_back({.kind = Form::box, .x = x, .y = from, .x2 = x2, .y2 = to, .color = color});
  }
  void dot(double x, double at, int color) { picture_.marks.push_back({.kind = Form::dot, .x = x, .y = at, .color = color}); }
  void text(double x, double at, std::string words, Anchor anchor = Anchor::left) {
    picture_.marks.push_back({.kind = Form::text, .x = x, .y = at, .text = std::move(words), .anchor = anchor});
  }
  void x_label(double x, const std::string& words) { text(x, bottom_ + 11, words, Anchor::middle); }

  /// Names in lines above the plot, as many next to each other as fit.
  static std::size_t legend_lines(const std::vector<std::string>& names) {
    std::size_t lines = names.empty() ? 0 : 1;
    double at = left_margin;
    for (const std::string& name : names) {
      const double width = legend_width(name);
      if (at > left_margin && at + width > Picture{}.width) {
        ++lines;
        at = left_margin;
      }
      at += width;
    }
    return lines;
  }
  /// The last `dashed` of the names are of dashed lines: curves, and the ideal in black.
  void legend(const std::vector<std::string>& names, std::size_t dashed_names, bool ideal) {
    double x = left_margin;
    double at = 9 + legend_line + below_title_;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const double width = legend_width(names[i]);
      if (x > left_margin && x + width > picture_.width) {
        x = left_margin;
        at += legend_line;
      }
      if (i + dashed_names >= names.size()) {
        line(x, at - 3, x + 9, at - 3, ideal && i + 1 == names.size() ? 0 : 4, true);
      } else {
        box(x, at - 6, x + 9, at, color_of(i));
      }
      text(x + 12, at, names[i]);
      x += width;
    }
  }

 private:
  Picture& picture_;
  /// The plot's title, its unit and its origin, shorter if they are too wide; if they still are, the origin takes a second line.
  std::vector<std::string> title_lines(const lab::Plot& plot, const Picture& picture) const {
    const std::string origin = picture.origin.empty() ? "" : " (" + picture.origin + ")";
    const std::string unit = unit_.name.empty() ? "" : " (" + unit_.name + ")";
    const bool said = plot.y_title.empty() || canonical(plot.title).starts_with(canonical(plot.y_title));
    const std::string brief = plot.title.substr(0, plot.title.find_first_of(":,("));
    const auto fits = [&](const std::string& title) { return text_width(title) <= picture.width - 4; };
    if (const std::string whole = plot.title + (said ? "" : ": " + plot.y_title) + unit + origin; fits(whole)) {
      return {whole};
    }
    if (const std::string shorter = brief + unit + origin; origin.empty() || fits(shorter)) {
      return {shorter};
    }
    return {brief + unit, origin.substr(1)};
  }

  Unit unit_;
  double below_title_ = 0;
  double top_ = 0;
  double bottom_ = 0;
  double right_ = 0;
  double low_ = 0;
  double high_ = 1;
};

struct Point {
  Json x;
  double y = 0;
  std::optional<double> low;
  std::optional<double> high;
};

struct Series {
  std::string name;
  std::vector<Point> points;
};

std::vector<Series> series_of(const lab::Plot& plot, const std::vector<Record>& rows) {
  std::vector<Series> all;
  for (const Record& row : rows) {
    const std::optional<double> y = value_of(row, plot.y);
    const Json* x = row.find(plot.x);
    if (!y || x == nullptr) {
      continue;
    }
    const std::string name = plot.series.empty() || row.find(plot.series) == nullptr ? "" : lab::text(row, plot.series);
    auto series = std::find_if(all.begin(), all.end(), [&](const Series& one) { return one.name == name; });
    if (series == all.end()) {
      series = all.insert(all.end(), {name, {}});
    }
    series->points.push_back({*x, *y, value_of(row, plot.low), value_of(row, plot.high)});
  }
  return all;
}

double largest_of(const std::vector<Series>& all) {
  double largest = 0;
  for (const Series& series : all) {
    for (const Point& point : series.points) {
      largest = std::max(largest, point.y);
    }
  }
  return largest;
}

std::vector<Json> xs_of(const std::vector<Series>& all) {
  std::vector<Json> xs;
  for (const Series& series : all) {
    for (const Point& point : series.points) {
      if (std::find(xs.begin(), xs.end(), point.x) == xs.end()) {
        xs.push_back(point.x);
      }
    }
  }
  return xs;
}

/// "Speedup (measured)".
std::string titled(const std::string& title, const std::string& origin) {
  return title + (origin.empty() ? "" : " (" + origin + ")");
}

/// "2 devices": names of lines that are mere numbers say what they count.
std::string series_name(const lab::Plot& plot, const std::string& name) {
  const bool number = !name.empty() && name.find_first_not_of("0123456789.") == std::string::npos;
  return !number                             ? name
         : plot.series == key::delay_ms.name ? name + " ms"
                                             : name + (plot.series == key::devices.name ? " dev." : "");
}

Picture draw_lines(Picture picture, lab::Plot plot, const std::vector<Series>& all, const std::string& origin,
                   std::vector<lab::Curve> curves) {
  std::vector<Json> xs = xs_of(all);
  const bool ideal = plot.ideal == "linear" || plot.ideal == "flat";
  if (xs.size() < 2 || !std::all_of(xs.begin(), xs.end(), [](const Json& x) { return x.is_number(); })) {
    return picture;
  }
  std::sort(xs.begin(), xs.end(), [](const Json& a, const Json& b) { return a.get<double>() < b.get<double>(); });
  const double first = xs.front().get<double>();
  const double last = xs.back().get<double>();
  const bool log = plot.log_x && first > 0;
  const double highest = std::max(largest_of(all), plot.ideal == "linear" ? last / first : plot.ideal == "flat" ? 1.0 : 0.0);
  std::vector<std::string> names;
  for (const Series& series : all) {
    if (all.size() > 1) {
      names.push_back(series_name(plot, series.name));
    }
  }
  if (ideal) {
    if (names.empty()) {
      names.push_back(origin);
    }
  }
  // A curve outside of the drawn range has no name in the legend either.
  const auto is_drawn = [&](const std::pair<double, double>& a, const std::pair<double, double>& b) {
    return a.first >= first && b.first <= last && std::min(a.second, b.second) >= 0 && std::max(a.second, b.second) <= highest;
  };
  std::erase_if(curves, [&](const lab::Curve& curve) {
    return std::adjacent_find(curve.points.begin(), curve.points.end(), is_drawn) == curve.points.end();
  });
  if (plot.curves && curves.empty()) {  // the title names them after what is measured
    plot.title = plot.title.substr(0, plot.title.find(", and "));
    picture.title = titled(plot.title, picture.origin);
  }
  for (const lab::Curve& curve : curves) {
    names.push_back(curve.name);
  }
  if (ideal) {
    names.emplace_back("ideal");
  }
  Frame frame(picture, plot, 0, highest, Frame::legend_lines(names));
  const auto x_of = [&](double x) {
    const double share = log ? std::log(x / first) / std::log(last / first) : (x - first) / (last - first);
    return frame.left() + 12 + share * (frame.right() - frame.left() - 24);
  };
  double labelled = -100;
  for (const Json& x : xs) {
    const double at = x_of(x.get<double>());
    if (at - labelled > 22) {
      frame.x_label(at,
                    plot.x.find("bytes") != std::string::npos ? to_text(Bytes(x.get<std::int64_t>())) : tick_text(x.get<double>()));
      labelled = at;
    }
  }
  if (plot.ideal == "linear") {
    for (std::size_t i = 1; i < xs.size(); ++i) {
      frame.line(x_of(xs[i - 1].get<double>()), frame.y(xs[i - 1].get<double>() / first), x_of(xs[i].get<double>()),
                 frame.y(xs[i].get<double>() / first), 0, true);
    }
  } else if (plot.ideal == "flat") {
    frame.line(x_of(first), frame.y(1), x_of(last), frame.y(1), 0, true);
  }
  for (std::size_t s = 0; s < all.size(); ++s) {
    std::vector<Point> points = all[s].points;
    std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.x.get<double>() < b.x.get<double>(); });
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double x = x_of(points[i].x.get<double>());
      if (i > 0) {
        frame.line(x_of(points[i - 1].x.get<double>()), frame.y(points[i - 1].y), x, frame.y(points[i].y), color_of(s));
      }
      frame.dot(x, frame.y(points[i].y), color_of(s));
    }
  }
  for (const lab::Curve& curve : curves) {
    for (std::size_t i = 1; i < curve.points.size(); ++i) {
      if (is_drawn(curve.points[i - 1], curve.points[i])) {
        frame.line(x_of(curve.points[i - 1].first), frame.y(curve.points[i - 1].second), x_of(curve.points[i].first),
                   frame.y(curve.points[i].second), 4, true);
      }
    }
  }
  frame.legend(names, curves.size() + (ideal ? 1 : 0), ideal);
  return picture;
}

Picture draw_bars(Picture picture, const lab::Plot& plot, const std::vector<Series>& all) {
  const std::vector<Json> xs = xs_of(all);
  if (xs.size() * all.size() < 2) {
    return picture;
  }
  std::vector<std::string> names;
  for (const Series& series : all) {
    if (all.size() > 1) {
      names.push_back(series_name(plot, series.name));
    }
  }
  Frame frame(picture, plot, 0, largest_of(all), Frame::legend_lines(names));
  const double group = (frame.right() - frame.left()) / static_cast<double>(xs.size());
  const double width = std::min(28.0, 0.75 * group / static_cast<double>(all.size()));
  for (std::size_t g = 0; g < xs.size(); ++g) {
    const double centre = frame.left() + group * (static_cast<double>(g) + 0.5);
    frame.x_label(centre, lab::word_of(xs[g]));
    for (std::size_t s = 0; s < all.size(); ++s) {
      const double x = centre + width * (static_cast<double>(s) - static_cast<double>(all.size()) / 2);
      for (const Point& point : all[s].points) {
        if (point.x == xs[g]) {
          frame.box(x, frame.y(point.y), x + width - 1, frame.y(0), color_of(s));
          if (point.low && point.high) {
            frame.line(x + width / 2, frame.y(*point.low), x + width / 2, frame.y(*point.high));
          }
        }
      }
    }
  }
  frame.legend(names, 0, false);
  return picture;
}

Picture draw_stacked(Picture picture, const lab::Plot& plot, const std::vector<Record>& rows) {
  std::vector<Record> shown;
  double highest = 0;
  double lowest = 0;
  for (const Record& row : rows) {
    double sum = 0;
    double below = 0;
    bool whole = row.find(plot.x) != nullptr;
    for (const std::string& part : plot.parts) {
      const std::optional<double> value = value_of(row, part);
      whole = whole && value;
      sum += std::max(0.0, value.value_or(0));
      below += std::min(0.0, value.value_or(0));
    }
    if (whole) {
      shown.push_back(row);
      highest = std::max(highest, sum);
      lowest = std::min(lowest, below);
    }
  }
  if (shown.size() < 2 || highest <= 0) {
    return picture;
  }
  Frame frame(picture, plot, lowest, highest, Frame::legend_lines(plot.part_titles));
  const double group = (frame.right() - frame.left()) / static_cast<double>(shown.size());
  const double width = std::min(34.0, 0.7 * group);
  for (std::size_t g = 0; g < shown.size(); ++g) {
    const double centre = frame.left() + group * (static_cast<double>(g) + 0.5);
    frame.x_label(centre, lab::text(shown[g], plot.x));
    double up = 0;
    double down = 0;
    for (std::size_t p = 0; p < plot.parts.size(); ++p) {
      const double value = *value_of(shown[g], plot.parts[p]);
      double& from = value < 0 ? down : up;
      frame.box(centre - width / 2, frame.y(from + value), centre + width / 2, frame.y(from), color_of(p));
      from += value;
    }
  }
  frame.legend(plot.part_titles, 0, false);
  return picture;
}

}  // namespace

Picture draw(const lab::Plot& plot, const std::vector<Record>& rows, const std::string& origin) {
  Picture picture{.title = titled(plot.title, origin), .origin = origin};
  if (plot.kind == lab::Plot::Type::stacked) {
    return draw_stacked(std::move(picture), plot, rows);
  }
  const std::vector<Series> all = series_of(plot, rows);
  const bool drawable = plot.kind == lab::Plot::Type::line || plot.kind == lab::Plot::Type::bars;  // the kinds that fit on paper
  if (!drawable || all.empty() || largest_of(all) <= 0) {
    return picture;
  }
  if (plot.kind == lab::Plot::Type::bars) {
    return draw_bars(std::move(picture), plot, all);
  }
  std::vector<lab::Curve> curves = plot.curves ? plot.curves(rows) : std::vector<lab::Curve>();
  curves.resize(std::min<std::size_t>(curves.size(), 1));  // with more of them one could not tell which is which
  return draw_lines(std::move(picture), plot, all, rows.front().value(key::origin, "measured"), curves);
}

std::string to_svg(const Picture& picture) {
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}pt\" height=\"{1:g}pt\" viewBox=\"0 0 {0:g} {1:g}\" role=\"img\" "
      "aria-label=\"{2}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"{3:g}\">\n",
      picture.width, picture.height, html_text(picture.title), text_height);
  for (const Mark& mark : picture.marks) {
    const auto& rgb = palette[static_cast<std::size_t>(mark.color)];
    const std::string color = fmt::format("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]);
    switch (mark.kind) {
      case Form::line:
        out += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{}\"{}/>\n",
                           mark.x, mark.y, mark.x2, mark.y2, color, mark.color == 5 && mark.dashed ? 0.4 : 1,
                           mark.dashed ? " stroke-dasharray=\"3 2\"" : "");
        break;
      case Form::box:
        out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
                           std::min(mark.x, mark.x2), std::min(mark.y, mark.y2), std::abs(mark.x2 - mark.x),
                           std::abs(mark.y2 - mark.y), color);
        break;
      case Form::dot:
        out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.2\" fill=\"{}\"/>\n", mark.x, mark.y, color);
        break;
      case Form::text:
        out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", mark.x, mark.y,
                           mark.anchor == Anchor::middle  ? " text-anchor=\"middle\""
                           : mark.anchor == Anchor::right ? " text-anchor=\"end\""
                                                          : "",
                           html_text(mark.text));
        break;
    }
  }
  return out + "</svg>\n";
}

std::string to_latex(const Picture& picture) {
  std::string out = fmt::format("{{\\setlength{{\\unitlength}}{{1pt}}\\scriptsize\\begin{{picture}}({:g},{:g})\n", picture.width,
                                picture.height);
  const double h = picture.height;
  for (const Mark& mark : picture.marks) {
    const auto& rgb = palette[static_cast<std::size_t>(mark.color)];
    const std::string color = fmt::format("\\color[rgb]{{{:.2f},{:.2f},{:.2f}}}", rgb[0] / 255.0, rgb[1] / 255.0, rgb[2] / 255.0);
    switch (mark.kind) {
      case Form::line: {
        // A Bézier curve through its own middle is a line of any slope, which \line is not; with few points it is dotted.
        const double length = std::hypot(mark.x2 - mark.x, mark.y2 - mark.y);
        out += fmt::format("{{{}\\qbezier{}({:.1f},{:.1f})({:.1f},{:.1f})({:.1f},{:.1f})}}\n", color,
                           mark.dashed ? fmt::format("[{}]", std::max(2, static_cast<int>(length / 4))) : "", mark.x, h - mark.y,
                           (mark.x + mark.x2) / 2, h - (mark.y + mark.y2) / 2, mark.x2, h - mark.y2);
        break;
      }
      case Form::box:
        out += fmt::format("\\put({:.1f},{:.1f}){{{}\\rule{{{:.1f}pt}}{{{:.1f}pt}}}}\n", std::min(mark.x, mark.x2),
                           h - std::max(mark.y, mark.y2), color, std::abs(mark.x2 - mark.x), std::abs(mark.y2 - mark.y));
        break;
      case Form::dot:
        out += fmt::format("\\put({:.1f},{:.1f}){{{}\\circle*{{4}}}}\n", mark.x, h - mark.y, color);
        break;
      case Form::text:
        out += fmt::format("\\put({:.1f},{:.1f}){{\\makebox(0,0)[b{}]{{{}}}}}\n", mark.x, h - mark.y,
                           mark.anchor == Anchor::middle  ? ""
                           : mark.anchor == Anchor::right ? "r"
                                                          : "l",
                           latex_text(mark.text));
        break;
    }
  }
  return out + "\\end{picture}}";
}

}  // namespace baton::sheet
