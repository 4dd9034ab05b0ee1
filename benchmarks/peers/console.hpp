// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "../../examples/common/attempt.hpp"
#include "../common/machine.hpp"

namespace benchmarks::peers {

/// The words of a line that the orchestrator has sent; empty at the end of the input.
using Command = std::vector<std::string>;

inline Command words_of(const std::string& line) {
    std::istringstream words(line);
    Command command;
    for (std::string word; words >> word;) { command.push_back(word); }
    return command;
}

inline std::string read_line() {
    std::string line;
    std::getline(std::cin, line);
    return line;
}

/// One line of JSON for each command, at once.
inline void answer(const nlohmann::json& reply) {
    const std::string line = reply.dump() + "\n";
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
}

/// What a program says of itself first: how it was compiled, and more.
inline nlohmann::json facts(nlohmann::json more) {
    const Machine machine = read_machine();
    more.update({{"compiler", machine.compiler}, {"flags", machine.flags}});
    return more;
}

/// @throws std::invalid_argument when the word is missing or no whole number
inline std::size_t number_at(const Command& command, std::size_t index) {
    if (index >= command.size() || command[index].find_first_not_of("0123456789") != std::string::npos) {
        throw std::invalid_argument("command '" + (command.empty() ? "" : command.front()) + "': word " +
                                    std::to_string(index) + " must be a whole number");
    }
    return std::stoull(command[index]);
}

inline const std::string& word_at(const Command& command, std::size_t index) {
    if (index >= command.size()) {
        throw std::invalid_argument("command '" + (command.empty() ? "" : command.front()) + "': word " +
                                    std::to_string(index) + " is missing");
    }
    return command[index];
}

/// A program's main: serve(words of the command line), whose error stands in one line; its exit code.
template <class Serve>
int run_program(const char* name, int count, char** arguments, Serve serve) {
    return program::run_program(name, [&] { serve(Command(arguments, arguments + count)); });
}

}  // namespace benchmarks::peers
