// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace program {

/// The instructions of an x86-64 processor, or those that a kernel of OpenBLAS is made of. Each has those before it.
enum class Instructions : std::uint8_t { sse, avx, avx2, avx512, unknown };

/// The newest that this processor has.
Instructions instructions_of_processor() noexcept;

/// Of a kernel by OpenBLAS's name for it, in capitals or not; `unknown` for a name that is not in the list, which is
/// taken for one that OpenBLAS has chosen well.
Instructions instructions_of_kernel(std::string_view kernel);

/// The value of OPENBLAS_CORETYPE by which every OpenBLAS since 0.3.10 takes a kernel of these instructions.
std::string_view core_type(Instructions instructions) noexcept;

/// What a process's matrix products are made by.
struct Blas {
    std::string library;   // name and version
    std::string kernel;    // OpenBLAS's name for it
    std::string replaced;  // the kernel that OpenBLAS had chosen, where it did not fit the processor; else empty
    std::string asked;     // OPENBLAS_CORETYPE, where the user has set it; else empty
    Instructions processor = Instructions::unknown;

    bool older_than_processor() const {
        return processor != Instructions::unknown && instructions_of_kernel(kernel) < processor;
    }
    /// A line that names library and kernel; where the kernel is older than the processor, one more with the remedy.
    std::string text() const;
};

/// OpenBLAS in this process. The first call, which must return before the first product begins, gives it a kernel
/// that fits the processor, unless the user has set OPENBLAS_CORETYPE. Releases before 0.3.25 take the kernel of 2004
/// for Intel's processors of model 176 and up (https://github.com/OpenMathLib/OpenBLAS/issues/4267).
const Blas& blas();

}  // namespace program
