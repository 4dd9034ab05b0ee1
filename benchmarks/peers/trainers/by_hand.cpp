// SPDX-License-Identifier: Apache-2.0
// Data parallelism by hand on the threads of one process: every rank holds everything, gradients are averaged, AdamW.
#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <thread>
#include <vector>

#include "network.hpp"

namespace {

constexpr std::size_t w1_count = trainer::hidden * trainer::inputs;
constexpr std::size_t count = w1_count + 2 * trainer::hidden;

struct AdamW {
    std::vector<float> exp_avg = std::vector<float>(count);
    std::vector<float> exp_avg_sq = std::vector<float>(count);
    double beta1_power = 1;
    double beta2_power = 1;

    void step(std::span<float> parameters, std::span<const float> gradients, float scale) {
        constexpr float beta1 = 0.9F;
        constexpr float beta2 = 0.999F;
        beta1_power *= 0.9;
        beta2_power *= 0.999;
        const auto step_size = static_cast<float>(trainer::learning_rate / (1 - beta1_power));
        const auto inverse_root = static_cast<float>(1 / std::sqrt(1 - beta2_power));
        for (std::size_t i = 0; i < count; ++i) {
            const float decay = i < w1_count || i >= w1_count + trainer::hidden
                                    ? static_cast<float>(1 - trainer::learning_rate * 0.01)
                                    : 1.0F;  // not of the bias
            const float g = scale * gradients[i];
            exp_avg[i] = beta1 * exp_avg[i] + (1 - beta1) * g;
            exp_avg_sq[i] = beta2 * exp_avg_sq[i] + (1 - beta2) * g * g;
            const float denominator = std::sqrt(exp_avg_sq[i]) * inverse_root + 1e-8F;
            parameters[i] = decay * parameters[i] - step_size * exp_avg[i] / denominator;
        }
    }
};

/// What the ranks share: each one's gradients and loss, and where they meet.
struct Shared {
    std::vector<std::vector<float>> gradients = std::vector<std::vector<float>>(trainer::ranks);
    std::vector<float> losses = std::vector<float>(trainer::ranks);
    std::barrier<> meeting{static_cast<std::ptrdiff_t>(trainer::ranks)};
};

void train(std::size_t rank, Shared& shared) {
    std::vector<float> parameters(count);
    for (std::size_t i = 0; i < w1_count; ++i) {
        parameters[i] = static_cast<float>(trainer::initial_value(false, i));
    }
    for (std::size_t i = 0; i < trainer::hidden; ++i) {
        parameters[w1_count + trainer::hidden + i] = static_cast<float>(trainer::initial_value(true, i));
    }
    AdamW optimizer;
    std::vector<float> sum(count);
    for (int step = 0; step < trainer::steps; ++step) {
        std::vector<float>& own = shared.gradients[rank];
        own.assign(count, 0);
        const float* const w = parameters.data();
        float* const g = own.data();
        const std::size_t sample = (static_cast<std::size_t>(step) * trainer::ranks + rank) * trainer::batch;
        shared.losses[rank] = trainer::forward_backward(w, w + w1_count, w + w1_count + trainer::hidden, g,
                                                        g + w1_count, g + w1_count + trainer::hidden, sample);
        shared.meeting.arrive_and_wait();
        double squares = 0;
        for (std::size_t i = 0; i < count; ++i) {
            sum[i] = 0;
            for (const std::vector<float>& each : shared.gradients) { sum[i] += each[i]; }
            const double mean = static_cast<double>(sum[i]) / trainer::ranks;
            squares += mean * mean;
        }
        float loss = 0;
        for (const float each : shared.losses) { loss += each / static_cast<float>(trainer::ranks); }
        const double norm = std::sqrt(squares);
        const double coefficient = norm > trainer::clip ? trainer::clip / (norm + 1e-6) : 1;
        shared.meeting.arrive_and_wait();
        optimizer.step(parameters, sum, static_cast<float>(coefficient / trainer::ranks));
        if (rank == 0 && (step % 80 == 0 || step + 1 == trainer::steps)) {
            std::printf("step %3d  loss %.5f  gradient norm %.4f\n", step, static_cast<double>(loss), norm);
        }
    }
}

}  // namespace

int main() {
    Shared shared;
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < trainer::ranks; ++rank) {
        threads.emplace_back([rank, &shared] { train(rank, shared); });
    }
    for (std::thread& thread : threads) { thread.join(); }
}
