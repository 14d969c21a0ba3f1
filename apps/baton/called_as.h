#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace baton::app {

/// The command that starts the program, as a user types it. The launcher of a clone says it (BATON_CALLED_AS=./baton);
/// otherwise `baton`.
const std::string& called_as();

/// The text with the commands in it as a user types them: each `baton NAME` of a command, and `baton --flag`, begins with
/// `called_as()`. Other mentions of baton stay.
std::string as_called(const std::string& text);

/// Names the commands that `as_called` looks for, and rewrites the examples and descriptions of all of them.
void write_as_called(CLI::App& program);

}  // namespace baton::app
