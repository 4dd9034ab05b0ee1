// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/optim/options.hpp>

namespace shardkit {

/// How far Muon moves a matrix of these rows and columns, as a multiple of the learning rate.
enum class MuonScale : std::uint8_t {
    jordan,    ///< sqrt(max(1, rows / columns)): learning rates of their own, as 0.02
    moonlight  ///< 0.2 sqrt(max(rows, columns)): about as far as AdamW, with whose learning rate it goes
};

/// Muon's hyper-parameters with PyTorch's defaults. `rule` is classical or nesterov; `epsilon` the least norm that a
/// matrix is divided by.
struct MuonOptions {
    double learning_rate = 1e-3;
    Momentum rule = Momentum::nesterov;
    double momentum = 0.95;
    double weight_decay = 0.1;
    double epsilon = 1e-7;
    MuonScale scale = MuonScale::jordan;

    friend constexpr bool operator==(const MuonOptions&, const MuonOptions&) noexcept = default;
};

}  // namespace shardkit
