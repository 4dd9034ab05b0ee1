// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <type_traits>

#include "../common/machine.hpp"
#include "../common/pin.hpp"
#include "console.hpp"
#include "parameters_file.hpp"

namespace benchmarks::peers {

/// Steps an optimizer on one processor, as the input says; `make` gives a pointer to one of so many elements.
template <class Make>
void serve_adamw(Make make) {
    pin_to(allowed_processors(), 0);
    const Machine machine = Machine::read();
    answer({{"compiler", machine.compiler}, {"flags", machine.flags}, {"threads", 1}, {"pinned", true}});
    std::invoke_result_t<Make, std::size_t> run;
    const auto next = [] { return words_of(read_line()); };
    for (Command command = next(); !command.empty() && command.front() != "quit"; command = next()) {
        if (command.front() == "prepare") {
            run.reset();
            run = make(number_at(command, 1));
            answer(nlohmann::json::object());
        } else if (run && command.front() == "go") {
            const std::size_t steps = number_at(command, 1);
            const auto begin = std::chrono::steady_clock::now();
            for (std::size_t i = 0; i < steps; ++i) { run->step(); }
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
            answer({{"seconds", took.count()}});
        } else if (run && command.front() == "dump") {
            ParametersFile{word_at(command, 1)}.write(run->parameters());
            answer(nlohmann::json::object());
        } else if (run && command.front() == "compare") {
            answer({{"difference", ParametersFile{word_at(command, 1)}.difference_from(run->parameters())}});
        } else {
            throw std::invalid_argument("command '" + command.front() +
                                        "': expected prepare, then go, dump, compare or quit");
        }
    }
}

}  // namespace benchmarks::peers
