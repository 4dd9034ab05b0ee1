// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/comm/reduce_op.hpp>

#include "../../examples/common/mesh_extents.hpp"
#include "../common/sweep.hpp"

namespace benchmarks {

enum class EngineKind : std::uint8_t { self, threads, mpi, nccl };
enum class VerbKind : std::uint8_t {
    all_gather,
    reduce_scatter,
    all_reduce,
    broadcast,
    all_to_all,
    all_to_all_uneven,
    send_receive,
    barrier
};
enum class DataType : std::uint8_t { fp64, fp32, fp16, bf16, int64, int32, uint8 };

inline constexpr std::array<std::string_view, 4> engine_names{"self", "threads", "mpi", "nccl"};
/// The first of them: those whose memory is the host's.
inline constexpr std::array<std::string_view, 3> host_engine_names{"self", "threads", "mpi"};
inline constexpr std::array<std::string_view, 8> verb_names{"all_gather",   "reduce_scatter", "all_reduce",
                                                            "broadcast",    "all_to_all",     "all_to_all_uneven",
                                                            "send_receive", "barrier"};
/// As nccl-tests names them.
inline constexpr std::array<std::string_view, 7> type_names{"double", "float", "half", "bfloat16",
                                                            "int64",  "int32", "uint8"};
inline constexpr std::array<std::string_view, 4> op_names{"sum", "max", "min", "tree_sum"};  // in ReduceOp's order
inline constexpr std::array<std::string_view, 3> axis_names{"dp", "tp", "cp"};
inline constexpr std::array<std::string_view, 3> in_place_names{"off", "on", "both"};
inline constexpr std::size_t most_ranks = 4096;

/// What the command line says, checked.
struct Options : Sweep {
    EngineKind engine = EngineKind::threads;
    std::vector<VerbKind> verbs;
    std::string left_out;  ///< verbs of --verb all that have no placement that was asked for, as a text
    std::vector<DataType> types{DataType::fp32};
    std::vector<shardkit::ReduceOp> ops{shardkit::ReduceOp::sum};
    program::MeshExtents mesh;
    std::vector<std::size_t> axes{0};  ///< indices into axis_names, slowest first
    std::size_t root = 0;
    bool out_of_place = true;
    bool in_place = true;
    bool shares = false;                                     ///< of the copy, behind the table's columns
    std::uint64_t staging_bytes = std::uint64_t{32} << 20U;  ///< nccl::Options::staging_bytes
    std::string plot;                                        ///< file name; empty: not asked for
    std::string peers;                                       ///< file whose times are drawn too; empty: none

    /// Ranks of one sub-mesh.
    std::size_t group_size() const noexcept {
        std::size_t size = 1;
        for (const std::size_t axis : axes) { size *= mesh.extent(axis); }
        return size;
    }
    std::size_t groups() const noexcept { return mesh.world() / group_size(); }
    /// "dp,cp"
    std::string axes_text() const {
        std::string text;
        for (const std::size_t axis : axes) { text.append(text.empty() ? "" : ",").append(axis_names[axis]); }
        return text;
    }
    bool wants(Placement placement) const noexcept {
        return placement == Placement::in_place ? in_place : out_of_place;
    }
};

/// @throws InputError when the engine cannot have the mesh's ranks: self has one, mpi and nccl the processes of
/// their job
inline void require_ranks(EngineKind engine, const program::MeshExtents& mesh, std::size_t processes) {
    const std::string ranks = std::to_string(mesh.world()) + " ranks";
    if (engine == EngineKind::self && mesh.world() != 1) {
        throw program::InputError("--engine self: has one rank, but " + ranks + " were given: expected --ranks 1");
    }
    if (engine == EngineKind::mpi && mesh.world() != processes) {
        throw program::InputError("--engine mpi: this job has " + std::to_string(processes) + " processes, but " +
                                  ranks + " were given: expected mpirun -n " + std::to_string(mesh.world()));
    }
    if (engine == EngineKind::nccl && mesh.world() != processes) {
        throw program::InputError("--engine nccl: this job has " + std::to_string(processes) +
                                  (processes == 1 ? " process" : " processes") + ", but " + ranks +
                                  " were given: expected WORLD_SIZE=" + std::to_string(mesh.world()) +
                                  " of a launcher, or benchmarks/run without one");
    }
}

/// The options, checked; none, and `help` set, when help was asked for. `processes`: of the job, with --engine mpi
/// or nccl.
/// @throws InputError that names flag, given value and expectation
std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help,
                                          std::size_t processes = 1);

}  // namespace benchmarks
