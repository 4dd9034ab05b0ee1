// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstddef>
#include <span>

#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/optim/adamw.hpp>

#include "library_adamw.hpp"

namespace benchmarks::peers {

/// AdamW's loop as one writes it by hand for AVX2 and FMA: eight elements at a time, at any address, and the rest one
/// by one. Roots and quotients are exact, as everywhere else; products are added without rounding in between.
/// Source:  the formula of shardkit::rules::AdamWUpdate; there is no gradient scale, which is 1 here
struct Avx2AdamW {
    float decay;
    float beta1;
    float one_minus_beta1;
    float beta2;
    float one_minus_beta2;
    float step_size;
    float inverse_root;
    float epsilon;

    void operator()(float* parameter, const float* gradient, float* exp_avg, float* exp_avg_sq, std::size_t n) const {
        const __m256 decays = _mm256_set1_ps(decay);
        const __m256 beta1s = _mm256_set1_ps(beta1);
        const __m256 one_minus_beta1s = _mm256_set1_ps(one_minus_beta1);
        const __m256 beta2s = _mm256_set1_ps(beta2);
        const __m256 one_minus_beta2s = _mm256_set1_ps(one_minus_beta2);
        const __m256 step_sizes = _mm256_set1_ps(step_size);
        const __m256 inverse_roots = _mm256_set1_ps(inverse_root);
        const __m256 epsilons = _mm256_set1_ps(epsilon);
        std::size_t i = 0;
        for (; i + 8 <= n; i += 8) {
            const __m256 g = _mm256_loadu_ps(gradient + i);
            const __m256 m =
                _mm256_fmadd_ps(beta1s, _mm256_loadu_ps(exp_avg + i), _mm256_mul_ps(one_minus_beta1s, g));
            const __m256 v = _mm256_fmadd_ps(beta2s, _mm256_loadu_ps(exp_avg_sq + i),
                                             _mm256_mul_ps(_mm256_mul_ps(one_minus_beta2s, g), g));
            const __m256 denominator = _mm256_fmadd_ps(_mm256_sqrt_ps(v), inverse_roots, epsilons);
            const __m256 change = _mm256_div_ps(_mm256_mul_ps(step_sizes, m), denominator);
            _mm256_storeu_ps(exp_avg + i, m);
            _mm256_storeu_ps(exp_avg_sq + i, v);
            _mm256_storeu_ps(parameter + i, _mm256_fmsub_ps(decays, _mm256_loadu_ps(parameter + i), change));
        }
        for (; i < n; ++i) {
            const float g = gradient[i];
            exp_avg[i] = beta1 * exp_avg[i] + one_minus_beta1 * g;
            exp_avg_sq[i] = beta2 * exp_avg_sq[i] + one_minus_beta2 * g * g;
            const float denominator = std::sqrt(exp_avg_sq[i]) * inverse_root + epsilon;
            parameter[i] = decay * parameter[i] - step_size * exp_avg[i] / denominator;
        }
    }
};

/// The hand-written loop on four arrays; nothing of the library but its options and its memory.
class AdamWByHand {
  public:
    explicit AdamWByHand(std::size_t n) : n_(n), parameter_(n), gradient_(n), exp_avg_(n), exp_avg_sq_(n) {
        for (std::size_t i = 0; i < n; ++i) {
            parameter_.data()[i] = AdamWNumbers::parameter(i);
            gradient_.data()[i] = AdamWNumbers::gradient(i);
        }
    }
    void step() {
        const shardkit::AdamWOptions options;
        beta1_power_ *= options.beta1;
        beta2_power_ *= options.beta2;
        const Avx2AdamW update{.decay = static_cast<float>(1 - options.learning_rate * options.weight_decay),
                               .beta1 = static_cast<float>(options.beta1),
                               .one_minus_beta1 = static_cast<float>(1 - options.beta1),
                               .beta2 = static_cast<float>(options.beta2),
                               .one_minus_beta2 = static_cast<float>(1 - options.beta2),
                               .step_size = static_cast<float>(options.learning_rate / (1 - beta1_power_)),
                               .inverse_root = static_cast<float>(1 / std::sqrt(1 - beta2_power_)),
                               .epsilon = static_cast<float>(options.epsilon)};
        update(parameter_.data(), gradient_.data(), exp_avg_.data(), exp_avg_sq_.data(), n_);
    }
    std::span<const float> parameters() const { return {parameter_.data(), n_}; }

  private:
    std::size_t n_;
    shardkit::HostBuffer<float> parameter_;
    shardkit::HostBuffer<float> gradient_;
    shardkit::HostBuffer<float> exp_avg_;
    shardkit::HostBuffer<float> exp_avg_sq_;
    double beta1_power_ = 1;
    double beta2_power_ = 1;
};

}  // namespace benchmarks::peers
