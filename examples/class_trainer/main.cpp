// SPDX-License-Identifier: Apache-2.0
// A trainer as a class in two files: what uses it compiles none of the steps. Two ranks train with an optimizer that
// is chosen at run time; without an argument with each in turn. g++ -std=c++20 -Iinclude examples/class_trainer/*.cpp
// -pthread -o example && ./example lion
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <vector>

#include "trainer.hpp"

using class_trainer::Trainer;

bool train(std::string_view optimizer) {
    constexpr std::size_t steps = 200;
    float first = 0, last = 0;
    shardkit::threads::run(shardkit::DeviceMesh<2>{}, [&](auto& rank) {
        Trainer trainer(rank, optimizer);
        for (std::size_t step = 0; step < steps; ++step) {
            if (step == steps * 3 / 4) { trainer.set_learning_rate(1e-3); }
            const Trainer::Step made = trainer.step(step);
            if (rank.rank() != 0) { continue; }
            if (step == 0) { first = made.loss; }
            last = made.loss;
        }
    });
    std::printf("%-6.*s loss %.4f, after %zu steps %.4f\n", static_cast<int>(optimizer.size()), optimizer.data(),
                static_cast<double>(first), steps, static_cast<double>(last));
    return last < first / 4;
}

int main(int count, char** given) try {
    std::vector<std::string_view> optimizers{"adamw", "lion", "sgd"};
    if (count > 1) { optimizers.assign(given + 1, given + count); }
    bool learned = true;
    for (const std::string_view optimizer : optimizers) { learned = train(optimizer) && learned; }
    std::printf("each loss fell to less than a quarter: %s\n", learned ? "yes" : "NO");
    return learned ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
}
