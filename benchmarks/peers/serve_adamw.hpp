// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "../common/pin.hpp"
#include "console.hpp"

namespace benchmarks::peers {

/// Parameters of one side for the others to read: fp32 in the machine's order.
struct ParametersFile {
    std::string name;

    /// @throws std::runtime_error when it cannot be written
    void write(std::span<const float> values) const {
        std::ofstream file(name, std::ios::binary);
        file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
        if (!file.flush()) { throw std::runtime_error("cannot write '" + name + "'"); }
    }

    /// The largest difference from `mine` over the largest of these; 1e300 when a value is no number.
    /// @throws std::runtime_error when the file has not as many values
    double difference_from(std::span<const float> mine) const {
        std::vector<float> others(mine.size());
        std::ifstream file(name, std::ios::binary);
        const auto bytes = static_cast<std::streamsize>(mine.size_bytes());
        if (!file.read(reinterpret_cast<char*>(others.data()), bytes) ||
            file.peek() != std::ifstream::traits_type::eof()) {
            throw std::runtime_error("'" + name + "': expected a file of " + std::to_string(bytes) + " bytes");
        }
        double difference = 0;
        double largest = 0;
        for (std::size_t i = 0; i < mine.size(); ++i) {
            const double apart = std::abs(double{mine[i]} - double{others[i]});
            if (!std::isfinite(apart)) { return 1e300; }
            difference = std::max(difference, apart);
            largest = std::max(largest, std::abs(double{mine[i]}));
        }
        return difference == 0 ? 0 : difference / largest;
    }
};

/// Steps an optimizer on one processor, as the input says; `make` gives a pointer to one of so many elements.
template <class Make>
void serve_adamw(Make make) {
    pin_to(allowed_processors(), 0);
    answer(facts({{"threads", 1}, {"pinned", true}}));
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
