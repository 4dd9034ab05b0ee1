// SPDX-License-Identifier: Apache-2.0
// Trains groups whose states lie in host memory on the NCCL engine over the stand-in, with the copies and the compute
// stream each once as late as it may: 1 when a bit differs from states on the device. Built against headers in which
// one wait between streams is missing.
#include <cstddef>
#include <cstdio>
#include <string>

#include <shardkit/policy/policies.hpp>

#include "unit/backend/nccl/offload_trainer.hpp"

int main() {
    using namespace offload_trainer;
    const auto differs = [](const Run& run) {
        std::string error;
        const auto expected = trained<sk::bf16, sk::StateFormat::full>(run, sk::Offload::none, all_paces[0], error);
        if (!error.empty()) { return true; }
        for (const sk::Offload way : {sk::Offload::states, sk::Offload::update}) {
            for (const std::size_t p : {1U, 3U, 4U, 6U}) {
                if (trained<sk::bf16, sk::StateFormat::full>(run, way, all_paces[p], error) != expected ||
                    !error.empty()) {
                    std::printf("at paces %zu other bits than on the device %s\n", p, error.c_str());
                    return true;
                }
            }
        }
        return false;
    };
    // Windows of whole parameters wait for nothing but the compute stream.
    return differs({}) || differs({.in_backward = true}) || differs({.policy = sk::DynamicPolicy(sk::NoShard{})}) ? 1
                                                                                                                  : 0;
}
