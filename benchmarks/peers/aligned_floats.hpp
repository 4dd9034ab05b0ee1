// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace benchmarks::peers {

/// Zeros on whole cache lines, as loops of vector instructions like them.
class AlignedFloats {
    static constexpr std::align_val_t line{64};
    struct Free {
        void operator()(float* data) const { ::operator delete[](data, line); }
    };

  public:
    explicit AlignedFloats(std::size_t n) : data_(new (line) float[n]()) {}
    float* data() const { return data_.get(); }

  private:
    std::unique_ptr<float[], Free> data_;
};

}  // namespace benchmarks::peers
