#pragma once

#include <unistd.h>

#include <exception>
#include <optional>
#include <string>

#include "baton/exercise/message.h"

/// The side of a checked program. It gets cases over the channel and answers each; what it prints counts nothing.
namespace baton::exercise {

inline void say(const Writer& message) {
  const std::string frame = std::to_string(message.text().size()) + "\n" + message.text();
  for (std::size_t done = 0; done < frame.size();) {
    const ssize_t written = ::write(channel, frame.data() + done, frame.size() - done);
    if (written <= 0) {
      ::_exit(1);  // the checker has gone
    }
    done += static_cast<std::size_t>(written);
  }
}

/// The next message; ends the program if there is none.
inline std::string hear() {
  std::string head;
  char one = 0;
  while (::read(channel, &one, 1) == 1 && one != '\n') {
    head += one;
  }
  if (one != '\n') {
    ::_exit(0);
  }
  std::string text(std::stoul(head), '\0');
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t got = ::read(channel, text.data() + done, text.size() - done);
    if (got <= 0) {
      ::_exit(0);
    }
    done += static_cast<std::size_t>(got);
  }
  return text;
}

/// Puts a question to the checker and waits for what it says.
inline Reader consult(const Writer& question) {
  say(Writer().add(verb::question).append(question));
  return Reader(hear());
}

/// Answers one case after the other: `answer(Reader& given, Writer& out)`.
template <typename Answer>
[[noreturn]] void serve(Answer answer) {
  while (true) {
    Reader given(hear());
    Writer out;
    out.add(verb::answer);
    try {
      answer(given, out);
    } catch (const std::exception& error) {
      out = Writer().add(verb::threw).add(error.what());
    } catch (...) {
      out = Writer().add(verb::threw).add("something that is not a std::exception");
    }
    say(out);
  }
}

}  // namespace baton::exercise
