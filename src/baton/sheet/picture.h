#pragma once

#include <string>
#include <vector>

#include "baton/lab/experiment.h"
#include "baton/lab/json.h"

namespace baton::sheet {

/// One mark of a drawing, in points from the upper left corner.
struct Mark {
  enum class Form : std::uint8_t { line, box, dot, text };
  enum class Anchor : std::uint8_t { left, middle, right };
  Form kind = Form::line;
  double x = 0;  // where it begins; the centre of a dot, the baseline of a text
  double y = 0;
  double x2 = 0;  // the other end of a line, the opposite corner of a box
  double y2 = 0;
  std::string text = {};
  Anchor anchor = Anchor::left;
  int color = 0;  // index into a small palette that is told apart in grey as well; 0 is black
  bool dashed = false;
};

/// A drawing that SVG and LaTeX can both hold. Its text is 8.5 points high.
struct Picture {
  double width = 228;
  double height = 150;
  std::string title;
  std::string origin = {};  // "measured" or "simulated", where one of each is next to the other
  std::vector<Mark> marks = {};
};

/// A plot of an experiment's rows: line, bars or stacked bars, axes with numbers and units, a legend where there are several
/// series. `origin`, as "measured", follows the title where others are next to it. Empty, without marks, where fewer than two rows
/// have a value.
Picture draw(const lab::Plot& plot, const std::vector<lab::Record>& rows, const std::string& origin = "");

std::string to_svg(const Picture& picture);
/// A picture environment that needs nothing but LaTeX and its package `color`.
std::string to_latex(const Picture& picture);

}  // namespace baton::sheet
