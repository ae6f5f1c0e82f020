// For programs of others that say on std::cout whether they are right, and return 0 in any case.
#pragma once

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

// Whether a main with these arguments prints the words.
inline bool says_so(const std::string& words, std::vector<std::string> arguments,
                    int (*program)(int, char**)) {
  std::vector<char*> argv = {const_cast<char*>("program")};
  for (std::string& each : arguments) argv.push_back(each.data());
  std::ostringstream said;
  std::streambuf* const before = std::cout.rdbuf(said.rdbuf());
  const int status = program(static_cast<int>(argv.size()), argv.data());
  std::cout.rdbuf(before);
  return status == 0 && said.str().find(words) != std::string::npos;
}
