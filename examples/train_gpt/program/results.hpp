// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace train_gpt {

/// Calls of one verb in one steady step of one rank.
struct CollectiveCount {
    std::string verb;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;    // between this rank and its peers
    std::uint64_t payload = 0;  // of the buffers handed to the verb
};

struct FinalParameter {
    std::string path;
    std::string name;
    std::vector<double> values;
};

/// What a run leaves behind; rank 0 writes it.
struct Results {
    std::vector<double> losses;      // per step, mean over the global batch
    std::vector<double> grad_norms;  // per step, before clipping
    double tokens_per_second = 0;
    std::uint64_t peak_bytes_per_rank = 0;          // the largest of all ranks
    std::uint64_t allocations_per_steady_step = 0;  // rounded up
    std::uint64_t multiply_adds_per_step = 0;       // of one rank's matrix products
    std::vector<CollectiveCount> collectives;
    std::vector<FinalParameter> parameters;  // where asked for
    std::string sample;
};

}  // namespace train_gpt
