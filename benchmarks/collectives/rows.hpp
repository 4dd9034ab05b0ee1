// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <shardkit/comm/reduce_op.hpp>

#include "../common/measure.hpp"
#include "elements.hpp"
#include "options.hpp"

namespace benchmarks {

/// What a verb's struct says, for a group of a number of ranks.
struct VerbFacts {
    bool out_of_place;
    bool in_place;
    bool reduces;
    bool has_root;
    bool moves_data;
    std::size_t pieces;
    double bus_factor;
    double copied_out_of_place;
    double copied_in_place;

    static VerbFacts of(VerbKind verb, std::size_t group_size) {
        return with_verb(verb, [&]<class V>(V) {
            const auto ranks = static_cast<double>(group_size);
            return VerbFacts{V::out_of_place,
                             V::in_place,
                             V::reduces,
                             V::has_root,
                             V::moves_data,
                             V::pieces(group_size),
                             V::bus_factor(ranks),
                             V::copied(Placement::out_of_place, ranks),
                             V::copied(Placement::in_place, ranks)};
        });
    }
    bool has(Placement placement) const noexcept {
        return placement == Placement::in_place ? in_place : out_of_place;
    }
    double copied(Placement placement) const noexcept {
        return placement == Placement::in_place ? copied_in_place : copied_out_of_place;
    }
};

/// One size of one collective, in both placements. Times are those of the slowest of all sub-meshes.
struct Row {
    VerbKind verb{};
    DataType type{};
    shardkit::ReduceOp op{};
    VerbFacts facts{};
    std::uint64_t bytes = 0;             ///< size: the whole buffer
    std::uint64_t count = 0;             ///< elements of a rank: those of a piece
    std::optional<Figure> out_of_place;  ///< none: not asked for, or the verb has no such form
    std::optional<Figure> in_place;

    /// Whether the figure has a bandwidth: a barrier has none, nor has what one rank alone leaves in place.
    static bool moves(const Figure& figure) noexcept { return figure.copy.has_value(); }
    /// Bytes per second.
    double algorithm_bandwidth(const Figure& figure) const noexcept {
        return static_cast<double>(bytes) / figure.time.median;
    }
    double bus_bandwidth(const Figure& figure) const noexcept {
        return algorithm_bandwidth(figure) * facts.bus_factor;
    }
    /// The bus bandwidth that this collective would have if it took as long as the copy.
    double copy_bandwidth(const Figure& figure) const noexcept {
        return static_cast<double>(bytes) / figure.copy->time.median * facts.bus_factor;
    }
    std::uint64_t wrong() const noexcept {
        return (out_of_place ? out_of_place->wrong.value_or(0) : 0) + (in_place ? in_place->wrong.value_or(0) : 0);
    }
};

/// Takes each row as soon as it is measured; called by world rank 0.
using RowSink = std::function<void(const Row&)>;

/// Everything that the options ask for, on an engine each; `sink` is called where rank 0 is.
/// @throws InputError when the program was built without the engine; what a rank throws
void run_on_self(const Options& options, const RowSink& sink);
void run_on_threads(const Options& options, const RowSink& sink);
void run_on_mpi(const Options& options, const RowSink& sink);
void run_on_nccl(const Options& options, const RowSink& sink);
/// In the order of EngineKind.
inline constexpr std::array run_on{run_on_self, run_on_threads, run_on_mpi, run_on_nccl};

/// All rows that the options ask for, without figures: per verb, element type, operation and size. The size is
/// rounded down to whole pieces, at least one element each; sizes that become equal are measured once.
std::vector<Row> plan_rows(const Options& options, std::size_t group_size);

}  // namespace benchmarks
