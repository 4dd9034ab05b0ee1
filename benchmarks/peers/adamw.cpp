// SPDX-License-Identifier: Apache-2.0
// adamw library|by_hand: steps the library's AdamW, or a loop written by hand, on one processor, as its input says:
//     prepare ELEMENTS     parameters and gradients that all sides make by the same formula
//     go STEPS             {"seconds": ...}
//     dump FILE            the parameters as they are, fp32 in the machine's order
//     compare FILE         the parameters with those in FILE: {"difference": largest, over the largest parameter}
// Where it was compiled without AVX2, `adamw by_hand` says {"unavailable": why} and ends.
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "library_adamw.hpp"
#include "serve_adamw.hpp"

#if defined(__AVX2__) && defined(__FMA__)
#include "avx2_adamw.hpp"
#endif

namespace {

using namespace benchmarks::peers;

void serve_library() {
    shardkit::self::run(shardkit::DeviceMesh<1>{}, [](auto& rank) {
        serve_adamw([&](std::size_t n) { return std::make_unique<LibraryAdamW>(rank, n); });
    });
}

void serve_by_hand() {
#if defined(__AVX2__) && defined(__FMA__)
    serve_adamw([](std::size_t n) { return std::make_unique<AdamWByHand>(n); });
#else
    answer({{"unavailable", "the programs were compiled for a processor without AVX2 and FMA"}});
#endif
}

}  // namespace

int main(int argc, char** argv) {
    return run_program("adamw", argc, argv, [](const Command& words) {
        const std::string side = words.size() == 2 ? words[1] : "";
        if (side != "library" && side != "by_hand") {
            throw std::invalid_argument("argument '" + side + "': expected library or by_hand");
        }
        side == "library" ? serve_library() : serve_by_hand();
    });
}
