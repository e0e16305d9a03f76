// SPDX-License-Identifier: MIT
#include "engine/optim/optimizer.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace ab {

void UpdateTable::hold(std::vector<ParamSlice> params, Device device) {
  norm_ = {};
  ++age_;
  for (ParamSlice& p : params) p.updates -= age_;
  if (params == params_ && device == device_) return;
  for (ParamSlice& p : params) p.updates += age_;
  age_ = 0;
  params_ = std::move(params);
  device_ = device;
  cut();
}

void UpdateTable::cut() {
  std::vector<ParamSlice> slices;
  for (const ParamSlice& param : params_)
    for (std::int64_t begin = 0; begin < param.count; begin += kSliceElements) {
      ParamSlice& slice = slices.emplace_back(param);
      for (float** part : {&slice.value, &slice.first_moment, &slice.second_moment})
        if (*part) *part += begin;
      slice.grad += begin;
      slice.count = std::min(kSliceElements, param.count - begin);
    }
  const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(slices.data()),
                                            slices.size() * sizeof(ParamSlice));
  slices_ = Tensor::from(bytes, Shape{static_cast<std::int64_t>(bytes.size())}, device_);
  partial_ = Tensor(Shape{static_cast<std::int64_t>(slices.size())}, DType::float64, device_);
}

SliceTable UpdateTable::slices() const {
  return {device_, reinterpret_cast<const ParamSlice*>(slices_.raw()), partial_.numel()};
}

const GradNorm* UpdateTable::measure(double max_norm) {
  norm_ = Tensor(Shape{static_cast<std::int64_t>(sizeof(GradNorm))}, DType::uint8, device_);
  auto* const result = static_cast<GradNorm*>(norm_.raw());
  measure_grad_norm(slices(), max_norm, partial_.data<double>(), result);
  return result;
}

double grad_norm_of(HostRead read) {
  if (!read.defined()) return 0;
  GradNorm result;
  std::memcpy(&result, read.get().raw(), sizeof result);
  return result.norm;
}

namespace {

/// The leading part of `moment` that fits `shape`, zeros where `shape` is larger.
Tensor cut_or_pad(const Tensor& moment, const Shape& shape) {
  if (!moment.defined() || moment.shape() == shape) return moment;
  const std::int64_t rows = shape[0], columns = shape.numel() / rows;
  const std::int64_t old_rows = moment.dim(0), old_columns = moment.numel() / old_rows;
  if (moment.device().kind == DeviceKind::shapes) return Tensor::zeros(shape, moment.dtype(), moment.device());
  const Tensor host = moment.to(Device{});
  const Tensor resized = Tensor::zeros(shape, moment.dtype());
  for (std::int64_t i = 0; i < std::min(rows, old_rows); ++i)
    std::copy_n(host.data<float>() + i * old_columns, std::min(columns, old_columns),
                resized.data<float>() + i * columns);
  return resized.to(moment.device());
}

/// The elements of `stored` as a moment of this parameter: zeros on first use, checked for its size.
float* moment(Tensor& stored, const Param& param) {
  const Tensor& value = param.value.value();
  if (!stored.defined()) stored = Tensor::zeros(value.shape(), DType::float32, value.device());
  AB_CHECK(stored.numel() == value.numel(), "{}: optimizer state of shape {} does not fit {}; reset or resize it",
           param.name, stored.shape().str(), value.shape().str());
  return stored.data<float>();
}

/// In a checkpoint.
std::string state_name(const Param& param) { return "optimizer." + param.name; }

}  // namespace

void Optimizer::step(double learning_rate) {
  std::vector<ParamSlice> updated;
  Device device;
  for (const Param* p : params_) {
    if (!p->trainable() || !p->value.grad().defined()) continue;
    updated.push_back(prepare(*p));
    device = p->value.value().device();
  }
  table_.hold(std::move(updated), device);
  const GradNorm* norm = nullptr;
  if (max_grad_norm_ > 0 || skip_overflow_)
    norm = table_.measure(max_grad_norm_ > 0 ? max_grad_norm_ : std::numeric_limits<double>::infinity());
  update(table_, learning_rate, norm);
  if (!norm || skip_overflow_) return;
  check_grad_norm();  // that of the update before: a GPU has this one to work on meanwhile
  unchecked_norm_ = table_.read_grad_norm();
  if (device.kind == DeviceKind::cpu) check_grad_norm();
}

void Optimizer::check_grad_norm() {
  const double norm = grad_norm_of(std::exchange(unchecked_norm_, {}));
  AB_CHECK_KIND(numerics, std::isfinite(norm), "the gradient norm is {}: lower the learning rate", norm);
}

ParamSlice Optimizer::prepare(const Param& param) {
  const Tensor &value = param.value.value(), &grad = param.value.grad();
  AB_CHECK(grad.device() == value.device() && grad.numel() == value.numel(),
           "{}: a gradient of shape {} does not fit a value of shape {}, or is on a different device", param.name,
           grad.shape().str(), value.shape().str());
  ParamState& s = state(param);
  ++s.updates;
  const int moments = moments_per_parameter();
  const bool is_matrix = value.rank() > 1;
  return {.grad = grad.data<float>(),
          .value = value.data<float>(),
          .first_moment = moments > 0 ? moment(s.first_moment, param) : nullptr,
          .second_moment = moments > 1 ? moment(s.second_moment, param) : nullptr,
          .count = value.numel(),
          .updates = s.updates,
          .weight_decay = decay_vectors_ || is_matrix ? weight_decay_ : 0.0f,
          .rate = is_matrix ? 1.0f : vector_rate_};
}

void Optimizer::clear_grads() {
  for (Param* p : params_) p->value.clear_grad();
}

void Optimizer::resize(const Param& param) {
  ParamState& s = state(param);
  s.first_moment = cut_or_pad(s.first_moment, param.value.shape());
  s.second_moment = cut_or_pad(s.second_moment, param.value.shape());
}

void Optimizer::save(StateDict& dict) const {
  for (const auto& [param, state] : states_) {
    const std::string name = state_name(*param);
    dict.put(name + ".updates", state.updates);
    if (state.first_moment.defined()) dict.put(name + ".first_moment", state.first_moment);
    if (state.second_moment.defined()) dict.put(name + ".second_moment", state.second_moment);
  }
}

void Optimizer::load(const StateDict& dict, const std::vector<Param*>& params, Device device) {
  states_.clear();
  for (const Param* param : params) {
    const std::string name = state_name(*param);
    if (!dict.has(name + ".updates")) continue;
    const auto moment = [&](const std::string& key) { return dict.has(key) ? dict.tensor(key).to(device) : Tensor(); };
    states_[param] = {moment(name + ".first_moment"), moment(name + ".second_moment"), dict.integer(name + ".updates")};
  }
}

namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(std::vector<Param*> params, const SgdOptions& options)
      : Optimizer(std::move(params), options.weight_decay), options_(options) {}
  int moments_per_parameter() const override { return 1; }

 protected:
  void update(const UpdateTable& table, double learning_rate, const GradNorm* norm) override {
    update_all(table.slices(), SgdRule{static_cast<float>(learning_rate), static_cast<float>(options_.momentum),
                                       options_.nesterov, norm});
  }

 private:
  SgdOptions options_;
};

class AdamW final : public Optimizer {
 public:
  AdamW(std::vector<Param*> params, const AdamWOptions& options)
      : Optimizer(std::move(params), options.weight_decay), options_(options) {}
  int moments_per_parameter() const override { return 2; }

 protected:
  void update(const UpdateTable& table, double learning_rate, const GradNorm* norm) override {
    update_all(table.slices(), AdamWRule{static_cast<float>(learning_rate), static_cast<float>(options_.epsilon),
                                         options_.beta1, options_.beta2, table.age(), norm});
  }

 private:
  AdamWOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(std::vector<Param*> params, const SgdOptions& options) {
  return std::make_unique<Sgd>(std::move(params), options);
}

std::unique_ptr<Optimizer> make_adamw(std::vector<Param*> params, const AdamWOptions& options) {
  return std::make_unique<AdamW>(std::move(params), options);
}

}  // namespace ab
