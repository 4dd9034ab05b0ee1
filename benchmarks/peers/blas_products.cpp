// SPDX-License-Identifier: Apache-2.0
// blas_products: makes matrix products as train_gpt does, on one thread and one processor, as its input says:
//     product M N K LEFT RIGHT ADD COUNT   one more, of M x K and K x N numbers, made COUNT times; LEFT, RIGHT: 1
//     where
//                                          the operand is stored transposed; ADD: 1 where it is added to its result
//     check                                {"sums": [...]}: a sum over each product, exact
//     go                                   {"seconds": of all of them}
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../examples/common/openblas.hpp"
#include "../../examples/train_gpt/model/host_place.hpp"
#include "../common/pin.hpp"
#include "console.hpp"

namespace {

using namespace benchmarks;
using namespace benchmarks::peers;
using train_gpt::Into;
using train_gpt::Matrix;

struct Product {
    std::size_t m, n, k;
    bool left_transposed, right_transposed, adds;
    std::size_t count;
};

Matrix<const float> operand(const std::vector<float>& data, std::size_t rows, std::size_t columns,
                            bool is_transposed) {
    return is_transposed ? train_gpt::transposed(train_gpt::matrix(data.data(), columns, rows))
                         : train_gpt::matrix(data.data(), rows, columns);
}

/// Operands are the first elements of three buffers, small whole numbers, of which every sum is exact.
class Products {
  public:
    void add(const Product& product) {
        const auto fill = [](std::vector<float>& data, std::size_t size, std::size_t step, std::size_t values) {
            for (std::size_t i = data.size(); i < size; ++i) {
                data.push_back(static_cast<float>(i * step % values) - static_cast<float>(values - 1) / 2);
            }
        };
        fill(left_, product.m * product.k, 7, 5);
        fill(right_, product.k * product.n, 11, 7);
        result_.resize(std::max(result_.size(), product.m * product.n));
        products_.push_back(product);
    }

    std::vector<double> sums() {
        std::vector<double> sums;
        for (const Product& product : products_) {
            clear();
            make(product);
            double sum = 0;
            for (std::size_t i = 0; i < product.m * product.n; ++i) {
                sum += static_cast<double>(i % 13 + 1) * double{result_[i]};
            }
            sums.push_back(sum);
        }
        return sums;
    }

    double seconds() {
        clear();
        const auto begin = std::chrono::steady_clock::now();
        for (const Product& product : products_) {
            for (std::size_t i = 0; i < product.count; ++i) { make(product); }
        }
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }

  private:
    void clear() { std::fill(result_.begin(), result_.end(), 0.0F); }

    void make(const Product& product) {
        train_gpt::matmul<float>(operand(left_, product.m, product.k, product.left_transposed),
                                 operand(right_, product.k, product.n, product.right_transposed),
                                 train_gpt::matrix(result_.data(), product.m, product.n),
                                 product.adds ? Into::add : Into::overwrite);
    }

    std::vector<float> left_, right_, result_;
    std::vector<Product> products_;
};

void serve() {
    pin_to(allowed_processors(), 0);
    openblas_set_num_threads(1);
    const program::Blas& blas = program::blas();
    answer(facts({{"threads", 1}, {"pinned", true}, {"blas", blas.library + ", kernel " + blas.kernel}}));
    Products products;
    const auto next = [] { return words_of(read_line()); };
    for (Command command = next(); !command.empty() && command.front() != "quit"; command = next()) {
        if (command.front() == "product") {
            const auto number = [&](std::size_t i) { return number_at(command, i); };
            products.add(
                {number(1), number(2), number(3), number(4) != 0, number(5) != 0, number(6) != 0, number(7)});
            answer(nlohmann::json::object());
        } else if (command.front() == "check") {
            answer({{"sums", products.sums()}});
        } else if (command.front() == "go") {
            answer({{"seconds", products.seconds()}});
        } else {
            throw std::invalid_argument("command '" + command.front() + "': expected product, check, go or quit");
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    return run_program("blas_products", argc, argv, [](const Command&) { serve(); });
}
