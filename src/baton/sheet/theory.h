#pragma once

#include <string>
#include <vector>

namespace baton::sheet {

/// A question as a sheet asks it.
struct AskedOn {
  std::string id;     // the one that an experiment answers, as hw1/2/Q3
  std::string label;  // Q3
  std::string text;
  std::string answer = {};  // in our own words, if no measurement gives it
};

/// The thirteen questions of csye-hw4's first part with their answers, each with the command that shows it where there is one.
std::vector<AskedOn> theory_questions();

}  // namespace baton::sheet
